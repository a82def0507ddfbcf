//! Tests that run the program `redisson-lock` against a real server.

// A program exports nothing: `pub` means that other modules use the item.
#![allow(unreachable_pub)]

mod commands;
mod doctor;
mod faults;
mod options;
mod output;
mod pages;
mod recipes;
mod run;
mod screen;
mod signals;
mod support;
mod terminal;
mod top;
mod watch;
