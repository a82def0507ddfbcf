//! Stands in for `tls` where TLS is not available: without the feature `tls`, and in the tests of `tests/shuttle`.

use super::socket::Stream;
use crate::config::tls::Tls;
use crate::error::{Error, Result};
use std::io;

pub(crate) enum Connector {}

impl Connector {
    pub(super) fn new(_: &Tls) -> Result<Self> {
        Err(Error::misuse("TLS needs this crate's feature `tls`: enable it in Cargo.toml"))
    }

    #[cfg_attr(all(test, shuttle), allow(dead_code))]
    pub(super) async fn tls(&self, _: &str, _: Box<dyn Stream>) -> io::Result<Box<dyn Stream>> {
        match *self {}
    }
}

pub(super) fn distrust(_: &io::Error) -> Option<String> {
    None
}
