//! The words of a history, each stored once.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

/// An interned word of a log. A log has few different words, so interned words are never freed.
pub type Word = &'static str;

pub fn intern(word: &str) -> Word {
    static WORDS: Mutex<BTreeSet<Word>> = Mutex::new(BTreeSet::new());
    let mut words = WORDS.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = words.get(word) {
        return known;
    }
    let word: Word = Box::leak(word.to_owned().into_boxed_str());
    words.insert(word);
    word
}
