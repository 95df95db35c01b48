//! seed → made-up traffic → an embedded broker → the real pipeline → reports: `retrytoll demo`.

pub mod outcome;
pub mod traffic;
