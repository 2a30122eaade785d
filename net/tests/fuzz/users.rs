//! The users' file, as anybody may write one.

use penstock_net::users::Users;

pub fn judge(input: &[u8]) {
    match Users::read(input) {
        Ok(users) => {
            let printed = users.to_string();
            assert_eq!(Users::read(printed.as_bytes()), Ok(users), "{printed}");
        }
        Err(error) => {
            let lines = input.iter().filter(|byte| **byte == b'\n').count();
            assert!((1..=lines + 1).contains(&error.line), "{error}");
            let message = error.to_string();
            assert!(
                !message.contains('\n') && message.len() < 300,
                "{message:?}"
            );
        }
    }
}
