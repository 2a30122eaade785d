//! The programs of a server by their names.

use std::collections::BTreeMap;

use penstock_net::program::{ProgramId, Run};
use serde_json::Value;

use crate::operation::ClientError;

/// The programs that a server had when it was asked: [`Client::programs`](crate::Client::programs).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServedPrograms {
    by_name: BTreeMap<String, ServedProgram>,
}

/// A program of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServedProgram {
    /// Its id. It follows from the program's name and meaning: a server whose files say something
    /// else refuses it.
    pub id: ProgramId,
    /// Its keys in their order, as the files have them: `stock:Stock`.
    pub keys: Vec<String>,
    /// Its arguments in their order, as the files have them: `quantity:u32 1..10`.
    pub arguments: Vec<String>,
}

impl ServedProgram {
    /// A run of it, without keys and arguments yet.
    #[must_use]
    pub fn run(&self) -> Run {
        Run::new(self.id)
    }
}

impl ServedPrograms {
    /// The program with this name.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<&ServedProgram> {
        self.by_name.get(name)
    }

    /// All of them by name, ascending.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &ServedProgram)> {
        let all = self.by_name.iter();
        all.map(|(name, program)| (name.as_str(), program))
    }

    /// Reads what INFO tells of a schema.
    pub(crate) fn read(text: &[u8]) -> Result<Self, ClientError> {
        let schema: Option<Value> = serde_json::from_slice(text).ok();
        let programs = schema
            .as_ref()
            .and_then(|schema| schema["programs"].as_object());
        let programs = programs.and_then(|programs| {
            let programs = programs.iter();
            let read = programs.map(|(name, program)| Some((name.clone(), read_program(program)?)));
            read.collect::<Option<_>>()
        });
        let by_name = programs.ok_or_else(|| {
            ClientError::Protocol("the schema that INFO tells is of another form".into())
        })?;
        Ok(ServedPrograms { by_name })
    }
}

fn read_program(program: &Value) -> Option<ServedProgram> {
    let texts = |name: &str| -> Option<Vec<String>> {
        let all = program[name].as_array()?.iter();
        all.map(|text| text.as_str().map(str::to_string)).collect()
    };
    Some(ServedProgram {
        id: program["id"].as_str()?.parse().ok()?,
        keys: texts("keys")?,
        arguments: texts("arguments")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_found_by_name_and_a_text_of_another_form_is_no_schema() {
        let text = br#"{"layouts":{},"programs":{
            "take":{"id":"0x00000000000000ff","keys":["stock:Stock"],"arguments":["n:u8"],
                "instructions":[],"returns":[]},
            "buy":{"id":"0x0000000000000001","keys":[],"arguments":[]}}}"#;
        let programs = ServedPrograms::read(text).expect("it is a schema");
        let take = programs.find("take").expect("it is there");
        assert_eq!(take.id, ProgramId(255));
        assert_eq!(
            (&take.keys[..], &take.arguments[..]),
            (&["stock:Stock".into()][..], &["n:u8".into()][..])
        );
        assert_eq!(take.run().program(), ProgramId(255));
        let names: Vec<&str> = programs.iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["buy", "take"]);
        assert_eq!(programs.find("Take"), None);
        let none = ServedPrograms::read(br#"{"layouts":{},"programs":{}}"#);
        assert_eq!(none.expect("no program"), ServedPrograms::default());
        for bad in [
            &b""[..],
            b"[]",
            b"{}",
            b"\xff",
            br#"{"programs":[]}"#,
            br#"{"programs":{"buy":{}}}"#,
            br#"{"programs":{"buy":{"id":1,"keys":[],"arguments":[]}}}"#,
            br#"{"programs":{"buy":{"id":"0x1","keys":[],"arguments":[]}}}"#,
            br#"{"programs":{"buy":{"id":"0x0000000000000001","keys":[1],"arguments":[]}}}"#,
        ] {
            assert!(matches!(
                ServedPrograms::read(bad),
                Err(ClientError::Protocol(_))
            ));
        }
    }
}
