//! The values of a configuration file, YAML or JSON. Values stay as written, because only the setting decides whether `0123`
//! is a number. A value also carries the class that Java would instantiate from it.

use std::collections::{HashMap, HashSet};
use yaml_rust2::parser::{Event, Parser, Tag};
use yaml_rust2::scanner::{ScanError, TScalarStyle};

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
    /// In the order of the file, without duplicate names.
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

/// The largest size of a file in bytes, before and after its variables are replaced, and the largest total size of its strings after
/// its aliases are replaced. A typical Redisson file has a few kilobytes.
pub(super) const MOST_BYTES: usize = 1 << 20;

/// The largest number of values in a file. An alias counts as all the values that it stands for.
const MOST_VALUES: usize = 10_000;

/// The deepest nesting of lists and maps. Redisson's own files need three levels.
const DEEPEST: usize = 32;

/// Reads the first document in `text`, or returns the problem.
pub(super) fn read(text: &str) -> Result<Value, String> {
    let mut reader = Reader::default();
    let mut parser = Parser::new(text.chars());
    // Reads one event at a time. The parser's own loop over a document is recursive, and continues after a problem.
    loop {
        match parser.next_token().map_err(|error| not_yaml(&error))?.0 {
            Event::DocumentEnd | Event::StreamEnd => return Ok(reader.whole.unwrap_or(Value::NULL)),
            event => reader.take(event)?,
        }
    }
}

/// Describes the problem. Cuts off the offending character at the end of the scanner's message, which may belong to a password.
fn not_yaml(error: &ScanError) -> String {
    let what = error.info().split(": `").next().unwrap_or_default();
    format!("the file is not YAML: {what}, at line {}", error.marker().line())
}

/// The size of a value.
#[derive(Clone, Copy, Default)]
struct Size {
    values: usize,
    bytes: usize,
    depth: usize,
}

impl Size {
    fn of(value: &Value) -> Self {
        let own = Self { values: 1, bytes: value.class.as_ref().map_or(0, String::len), depth: 0 };
        match &value.content {
            Content::Null => own,
            Content::Text(text) => Self { bytes: own.bytes + text.len(), ..own },
            Content::List(list) => list.iter().fold(own, |sum, item| sum.around(Self::of(item))),
            Content::Map(map) => map.iter().fold(own, |sum, (name, value)| {
                sum.around(Self { values: 1, bytes: name.len(), depth: 0 }).around(Self::of(value))
            }),
        }
    }

    fn around(self, inner: Self) -> Self {
        Self {
            values: self.values + inner.values,
            bytes: self.bytes + inner.bytes,
            depth: self.depth.max(inner.depth + 1),
        }
    }
}

#[derive(Default)]
struct Reader {
    /// The lists and maps that have not ended, innermost last.
    open: Vec<Open>,
    anchored: HashMap<usize, (Value, Size)>,
    whole: Option<Value>,
    /// The size of everything read so far, including the copies for aliases.
    made: Size,
}

struct Open {
    value: Value,
    anchor: usize,
    /// In a map, the name whose value comes next.
    name: Option<String>,
    names: HashSet<String>,
}

impl Reader {
    fn take(&mut self, event: Event) -> Result<(), String> {
        match event {
            Event::Scalar(text, style, anchor, tag) => {
                let null = style == TScalarStyle::Plain
                    && tag.is_none()
                    && ["", "~", "null", "Null", "NULL"].contains(&text.as_str());
                let content = if null { Content::Null } else { Content::Text(text) };
                let value = Value { class: class(tag), content };
                self.spend(Size::of(&value))?;
                self.add(value, anchor)
            }
            Event::SequenceStart(anchor, tag) => self.begin(Content::List(Vec::new()), anchor, tag),
            Event::MappingStart(anchor, tag) => self.begin(Content::Map(Vec::new()), anchor, tag),
            Event::SequenceEnd | Event::MappingEnd => match self.open.pop() {
                Some(Open { value, anchor, .. }) => self.add(with_class_of_json(value), anchor),
                None => Ok(()),
            },
            Event::Alias(anchor) => {
                let Some(&(_, size)) = self.anchored.get(&anchor) else {
                    return Err("the file has an alias inside its own anchor".into());
                };
                // Counted before the copy is made.
                self.spend(size)?;
                let value = self.anchored[&anchor].0.clone();
                self.add(value, 0)
            }
            Event::Nothing
            | Event::StreamStart
            | Event::StreamEnd
            | Event::DocumentStart
            | Event::DocumentEnd => Ok(()),
        }
    }

    fn spend(&mut self, size: Size) -> Result<(), String> {
        self.made.values += size.values;
        self.made.bytes += size.bytes;
        if self.made.values > MOST_VALUES {
            return Err(format!("the file has more than {MOST_VALUES} values, counting those of each alias"));
        }
        if self.made.bytes > MOST_BYTES {
            return Err(format!(
                "the file has more than {MOST_BYTES} bytes of strings, counting those of each alias"
            ));
        }
        if self.open.len() + size.depth > DEEPEST {
            return Err(format!("the file nests lists and maps more than {DEEPEST} levels deep"));
        }
        Ok(())
    }

    fn begin(&mut self, content: Content, anchor: usize, tag: Option<Tag>) -> Result<(), String> {
        let value = Value { class: class(tag), content };
        self.spend(Size { depth: 1, ..Size::of(&value) })?;
        self.open.push(Open { value, anchor, name: None, names: HashSet::new() });
        Ok(())
    }

    fn add(&mut self, value: Value, anchor: usize) -> Result<(), String> {
        if anchor > 0 {
            let size = Size::of(&value);
            self.spend(size)?;
            self.anchored.insert(anchor, (value.clone(), size));
        }
        let Some(Open { value: outer, name, names, .. }) = self.open.last_mut() else {
            self.whole = Some(value);
            return Ok(());
        };
        match (&mut outer.content, name.take()) {
            (Content::List(list), _) => list.push(value),
            (Content::Map(map), Some(name)) => map.push((name, value)),
            (_, None) => match value.content {
                Content::Text(text) if names.insert(text.clone()) => *name = Some(text),
                Content::Text(text) => return Err(format!("the file sets `{}` twice", text.escape_debug())),
                _ => return Err("the file has a key that is not a string".into()),
            },
            (Content::Null | Content::Text(_), Some(_)) => {}
        }
        Ok(())
    }
}

/// Returns the class of the tag `!<org.example.Class>` or `!org.example.Class`. YAML's own types are not Java classes.
fn class(tag: Option<Tag>) -> Option<String> {
    let Tag { handle, suffix } = tag?;
    let whole = handle + &suffix;
    let name = whole.trim_start_matches('!');
    let of_yaml = name.is_empty() || name.starts_with("tag:yaml.org,2002:");
    (!of_yaml).then(|| name.to_owned())
}

/// Takes the class from the property that names it in JSON.
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

    /// Returns the value of `a`.
    fn a(file: &str) -> Value {
        match read(file).unwrap().content {
            Content::Map(map) => {
                map.into_iter().find(|(name, _)| name == "a").expect("the file has an `a`").1
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn scalars_stay_as_written() {
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
    fn ambiguous_files_are_refused() {
        for (bad, what) in [
            ("a: 1\nb: 2\na: 3", "sets `a` twice"),
            ("x: {a: 1, a: 1}", "sets `a` twice"),
            ("&x a: &y {b: *y}", "alias"),
            ("[a]: 1", "not a string"),
            ("a: [", "YAML"),
        ] {
            let problem = read(bad).unwrap_err();
            assert!(problem.contains(what), "{bad}: {problem}");
        }
    }

    /// Each level contains nine references to the level below.
    fn nested_aliases(levels: u32) -> String {
        (1..=levels).fold("l0: &l0 [x]\n".to_owned(), |text, level| {
            let below = vec![format!("*l{}", level - 1); 9].join(",");
            text + &format!("l{level}: &l{level} [{below}]\n")
        })
    }

    #[test]
    fn aliases_cannot_inflate_the_file() {
        let file = nested_aliases(6);
        assert!(file.len() < 318, "{}", file.len());
        let long = format!("a: &a {}\nb: [{}]", "x".repeat(100_000), vec!["*a"; 100].join(","));
        let tags = format!("%TAG !t! {}\n---\n[{}]", "x".repeat(100_000), vec!["!t!y z"; 100].join(","));
        for (file, what) in
            [(&file, "values"), (&nested_aliases(5), "values"), (&long, "bytes"), (&tags, "bytes")]
        {
            let problem = read(file).unwrap_err();
            assert!(problem.contains(what), "{problem}");
        }
        let few = format!("a: &a {{b: [c, d]}}\nx: [{}]", vec!["*a"; 100].join(","));
        assert!(read(&few).is_ok());
    }

    #[test]
    fn a_file_cannot_be_deep_or_have_too_many_values() {
        let chain = (1..100).fold("l0: &l0 [x]\n".to_owned(), |text, level| {
            text + &format!("l{level}: &l{level} [*l{}]\n", level - 1)
        });
        for (file, what) in [
            ("[".repeat(200), "deep"),
            ("- ".repeat(100_000) + "x", "deep"),
            ("? ".repeat(100_000) + "x", "deep"),
            ((0..1000).map(|level| " ".repeat(level) + "a:\n").collect(), "deep"),
            (chain, "deep"),
            (format!("[{}]", "x,".repeat(20_000)), "values"),
            ((0..20_000).map(|at| format!("a{at}: 1\n")).collect(), "values"),
        ] {
            let problem = read(&file).unwrap_err();
            assert!(problem.contains(what), "{problem}");
        }
    }
}
