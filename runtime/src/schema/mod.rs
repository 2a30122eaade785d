//! Layouts and programs by name, from the TOML files of a directory. `deploy/SCHEMA.md` describes
//! the files.
//!
//! ```text
//! *.toml --> declarations, with file, line and column --> layouts --> programs --> ServedSchema
//!            (document)                                  (layouts)   (programs)    to each shard
//! ```
//!
//! A set is whole or it is not used: each defect is named, and the set of before stays.

mod assembly;
mod declaration;
mod defect;
mod document;
mod folder;
mod growth;
mod layouts;
mod programs;
mod running;

use std::path::Path;

use penstock_net::program::{Program, Programs, ServedSchema};
use serde_json::{Value, json};

use self::declaration::Declarations;
pub use self::declaration::{ProgramDeclaration, Written};
pub use self::defect::{Defect, SchemaError};
pub use self::programs::NamedProgram;
pub(crate) use self::running::RunningSchema;
use penstock_net::expression::ValueLayout;
pub use penstock_net::program::NamedLayout;

/// Layouts and programs, checked.
#[derive(Clone, Debug, Default)]
pub struct Schema {
    declarations: Declarations,
    layouts: Vec<NamedLayout>,
    programs: Vec<NamedProgram>,
}

impl Schema {
    /// Reads the files of a directory whose names end in `.toml`.
    ///
    /// # Errors
    /// [`SchemaError`] with all defects, each with its place and value.
    pub fn read(directory: &Path) -> Result<Schema, SchemaError> {
        Schema::of_files(&folder::read(directory)?)
    }

    /// Makes a schema of the names and texts of its files.
    ///
    /// # Errors
    /// As for [`Schema::read`].
    pub fn of_files(files: &[(String, String)]) -> Result<Schema, SchemaError> {
        let (mut declarations, mut defects) = (Declarations::default(), Vec::new());
        for (name, text) in files {
            document::read(name, text, &mut declarations, &mut defects);
        }
        Schema::compile(declarations, defects)
    }

    /// Makes a schema of the text that a server tells.
    ///
    /// # Errors
    /// What is not as [`Schema::json`] writes it.
    pub fn of_json(text: &str) -> Result<Schema, SchemaError> {
        let declarations = Declarations::of_json(text).map_err(SchemaError::of_text)?;
        Schema::compile(declarations, Vec::new())
    }

    fn compile(
        declarations: Declarations,
        mut defects: Vec<Defect>,
    ) -> Result<Schema, SchemaError> {
        let layouts = layouts::compile(&declarations, &mut defects);
        let programs = programs::compile(&declarations, &layouts, &mut defects);
        match defects.is_empty() {
            true => Ok(Schema {
                declarations,
                layouts,
                programs,
            }),
            false => Err(SchemaError::of_defects(defects)),
        }
    }

    /// Whether this may take the place of an earlier schema: its layouts have grown at their ends
    /// at most.
    ///
    /// # Errors
    /// [`SchemaError`] with each layout that shrinks or moves.
    pub fn check_growth(&self, before: &Schema) -> Result<(), SchemaError> {
        let defects = growth::defects(self, before);
        match defects.is_empty() {
            true => Ok(()),
            false => Err(SchemaError::of_defects(defects)),
        }
    }

    /// The layouts in the order of the files.
    pub fn layouts(&self) -> &[NamedLayout] {
        &self.layouts
    }

    /// The layout with this name.
    pub fn layout(&self, name: &str) -> Option<&ValueLayout> {
        let found = self.layouts.iter().find(|it| it.name == name);
        found.map(|it| &it.layout)
    }

    /// The programs in the order of the files.
    pub fn programs(&self) -> &[NamedProgram] {
        &self.programs
    }

    /// The program with this name.
    pub fn program(&self, name: &str) -> Option<&NamedProgram> {
        self.programs.iter().find(|it| it.program.name() == name)
    }

    /// What shards serve of it.
    pub fn served(&self) -> ServedSchema {
        let programs: Vec<Program> = self.programs.iter().map(|it| it.program.clone()).collect();
        ServedSchema {
            programs: Programs::new(programs),
            layouts: self.layouts.clone(),
            text: self.json(),
        }
    }

    /// The declarations as JSON, and the ids of the programs.
    pub fn json(&self) -> String {
        let texts = |all: &[Written]| -> Vec<String> {
            all.iter().map(|written| written.text.clone()).collect()
        };
        let layouts = self.declarations.layouts.iter().zip(&self.layouts);
        let layouts = layouts.map(|(declared, compiled)| {
            let layout = json!({
                "fields": texts(&declared.fields),
                "bytes": compiled.layout.bytes(),
            });
            (declared.name.text.clone(), layout)
        });
        let programs = self.programs.iter().map(|named| {
            let declared = &named.declaration;
            let program = json!({
                "id": named.program.id().to_string(),
                "keys": texts(&declared.keys),
                "arguments": texts(&declared.arguments),
                "instructions": texts(&declared.instructions),
                "returns": texts(&declared.returns),
            });
            (declared.name.text.clone(), program)
        });
        let layouts: serde_json::Map<String, Value> = layouts.collect();
        let programs: serde_json::Map<String, Value> = programs.collect();
        json!({ "layouts": layouts, "programs": programs }).to_string()
    }
}

#[cfg(test)]
mod tests;
