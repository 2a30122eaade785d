//! The texts of a node as SCRIPT of the port asks for them.

use penstock_net::resp::ScriptLibrary;

use crate::texts::ScriptTexts;

impl ScriptLibrary for ScriptTexts {
    fn load(&self, text: &[u8]) -> Result<[u8; 20], String> {
        ScriptTexts::load(self, text).map_err(|error| error.to_string())
    }

    fn knows(&self, digest: &[u8; 20]) -> bool {
        self.exists(digest)
    }

    fn text(&self, digest: &[u8; 20]) -> Option<Vec<u8>> {
        self.get(digest).map(|text| text.to_vec())
    }

    fn flush(&self) {
        ScriptTexts::flush(self);
    }
}
