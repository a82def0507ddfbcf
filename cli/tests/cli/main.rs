//! Tests that run the program `redisson-lock` against a real server.

mod commands;
mod doctor;
mod faults;
mod pages;
mod run;
mod signals;
mod support;
mod terminal;
mod watch;
