//! The stored secrets of users, as a login looks them up.

use crate::auth::{Credentials, Verifier};

use super::{DECOY_BYTES, Users};

impl Credentials for Users {
    fn verifier(&self, login: &str) -> Option<&Verifier> {
        self.login(login).map(|(_, verifier)| verifier)
    }

    fn decoy(&self) -> &[u8; DECOY_BYTES] {
        Users::decoy(self)
    }
}
