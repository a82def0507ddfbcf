//! The values of a configuration file, YAML or JSON: as they are written there, because it is the setting that says whether
//! `0123` is a number, and with the class by which Java would make something of them.

use std::collections::HashMap;
use yaml_rust2::parser::{Event, EventReceiver, Parser, Tag};
use yaml_rust2::scanner::TScalarStyle;

#[cfg_attr(test, derive(Debug))]
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Value {
    pub class: Option<String>,
    pub content: Content,
}

#[cfg_attr(test, derive(Debug))]
#[derive(Clone, PartialEq, Eq)]
pub(super) enum Content {
    Null,
    Text(String),
    List(Vec<Value>),
    /// In the order of the file. No name is there twice.
    Map(Vec<(String, Value)>),
}

impl Value {
    pub(super) const NULL: Self = Self { class: None, content: Content::Null };

    pub(super) fn is_null(&self) -> bool {
        *self == Self::NULL
    }

    pub(super) fn text(&self) -> Option<&str> {
        match &self.content {
            Content::Text(text) => Some(text),
            _ => None,
        }
    }
}

/// The first document in `text`, or what is wrong with it.
pub(super) fn read(text: &str) -> Result<Value, String> {
    let mut reader = Reader::default();
    let outcome = Parser::new(text.chars()).load(&mut reader, false);
    outcome.map_err(|error| format!("is not YAML: {error}"))?;
    reader.problem.map_or(Ok(reader.whole.unwrap_or(Value::NULL)), Err)
}

#[derive(Default)]
struct Reader {
    /// Lists and maps that are not at their end, the inmost last.
    open: Vec<Open>,
    anchored: HashMap<usize, Value>,
    whole: Option<Value>,
    problem: Option<String>,
}

struct Open {
    value: Value,
    anchor: usize,
    /// In a map, the name whose value comes next.
    name: Option<String>,
}

impl EventReceiver for Reader {
    fn on_event(&mut self, event: Event) {
        match event {
            Event::Scalar(text, style, anchor, tag) => {
                let null = style == TScalarStyle::Plain
                    && tag.is_none()
                    && ["", "~", "null", "Null", "NULL"].contains(&text.as_str());
                let content = if null { Content::Null } else { Content::Text(text) };
                self.add(Value { class: class(tag), content }, anchor);
            }
            Event::SequenceStart(anchor, tag) => self.begin(Content::List(Vec::new()), anchor, tag),
            Event::MappingStart(anchor, tag) => self.begin(Content::Map(Vec::new()), anchor, tag),
            Event::SequenceEnd | Event::MappingEnd => {
                if let Some(Open { value, anchor, .. }) = self.open.pop() {
                    self.add(with_class_of_json(value), anchor);
                }
            }
            Event::Alias(anchor) => match self.anchored.get(&anchor).cloned() {
                Some(value) => self.add(value, 0),
                None => self.fail("has an alias for what it is a part of".into()),
            },
            Event::Nothing
            | Event::StreamStart
            | Event::StreamEnd
            | Event::DocumentStart
            | Event::DocumentEnd => {}
        }
    }
}

impl Reader {
    fn begin(&mut self, content: Content, anchor: usize, tag: Option<Tag>) {
        self.open.push(Open { value: Value { class: class(tag), content }, anchor, name: None });
    }

    fn add(&mut self, value: Value, anchor: usize) {
        if anchor > 0 {
            self.anchored.insert(anchor, value.clone());
        }
        let Some(Open { value: outer, name, .. }) = self.open.last_mut() else {
            self.whole = Some(value);
            return;
        };
        match (&mut outer.content, name.take()) {
            (Content::List(list), _) => list.push(value),
            (Content::Map(map), Some(name)) if map.iter().any(|(other, _)| *other == name) => {
                self.fail(format!("`{}` is there twice", name.escape_debug()));
            }
            (Content::Map(map), Some(name)) => map.push((name, value)),
            (_, None) => match value.content {
                Content::Text(text) => *name = Some(text),
                _ => self.fail("has a name that is no text".into()),
            },
            (Content::Null | Content::Text(_), Some(_)) => {}
        }
    }

    fn fail(&mut self, problem: String) {
        self.problem.get_or_insert(problem);
    }
}

/// `!<org.example.Class>`, and the same without the brackets. YAML's own types are none of Java's.
fn class(tag: Option<Tag>) -> Option<String> {
    let Tag { handle, suffix } = tag?;
    let whole = handle + &suffix;
    let name = whole.trim_start_matches('!');
    let of_yaml = name.is_empty() || name.starts_with("tag:yaml.org,2002:");
    (!of_yaml).then(|| name.to_owned())
}

/// Which says it in a property.
fn with_class_of_json(mut value: Value) -> Value {
    let Content::Map(map) = &mut value.content else { return value };
    let named = |(name, value): &(String, Value)| {
        ["class", "@class"].contains(&name.as_str()) && value.text().is_some()
    };
    if value.class.is_none()
        && let Some(at) = map.iter().position(named)
        && let Content::Text(class) = map.remove(at).1.content
    {
        value.class = Some(class);
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Value {
        Value { class: None, content: Content::Text(text.into()) }
    }

    /// The value of `a`.
    fn a(file: &str) -> Value {
        match read(file).unwrap().content {
            Content::Map(map) => map.into_iter().find(|(name, _)| name == "a").expect("it is there").1,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn what_is_written_stays_as_it_is_written() {
        for written in ["0123456", "+12", "True", "1e3", "0x1F", "1.50", "yes", ".inf", "x"] {
            assert_eq!(a(&format!("a: {written}")), text(written));
            assert_eq!(a(&format!("a: '{written}'")), text(written));
        }
        for null in ["", "~", "null", "Null", "NULL"] {
            assert!(a(&format!("a: {null}\nb: 1")).is_null(), "{null}");
            assert_eq!(a(&format!("a: \"{null}\"")), text(null));
        }
        assert_eq!(a("a: !!str null"), text("null"));
        assert_eq!(a("b: &x 7\na: *x"), text("7"));
        assert_eq!(read("").unwrap(), Value::NULL);
    }

    #[test]
    fn a_class_is_a_tag_or_a_property() {
        let empty = |class: &str| Value { class: Some(class.into()), content: Content::Map(Vec::new()) };
        for file in [
            "a: !<com.acme.X> {}",
            "a: !com.acme.X {}",
            "a:\n  !<com.acme.X>\n  {}",
            "a: {class: com.acme.X}",
            r#"{"a":{"class":"com.acme.X"}}"#,
            r#"{"a":{"@class":"com.acme.X"}}"#,
            "b: &x !<com.acme.X> {}\na: *x",
        ] {
            assert_eq!(a(file), empty("com.acme.X"), "{file}");
        }
        let alone = a("a: !<com.acme.X>\nb: 1");
        assert_eq!((alone.class.as_deref(), alone.text()), (Some("com.acme.X"), Some("")));
        assert_eq!(a("a: !!map {}").class, None);
    }

    #[test]
    fn what_could_be_meant_in_two_ways_is_told() {
        for (bad, what) in [
            ("a: 1\nb: 2\na: 3", "`a` is there twice"),
            ("x: {a: 1, a: 1}", "`a` is there twice"),
            ("&x a: &y {b: *y}", "alias"),
            ("[a]: 1", "no text"),
            ("a: [", "YAML"),
        ] {
            let problem = read(bad).unwrap_err();
            assert!(problem.contains(what), "{bad}: {problem}");
        }
    }
}
