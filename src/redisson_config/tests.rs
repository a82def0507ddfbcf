//! Whole configuration files, as Redisson and its users write them.

use super::*;
use crate::error::Error;
use proptest::strategy::Strategy;

fn parsed(text: &str) -> RedissonConfig {
    RedissonConfig::parse(text).unwrap()
}

fn misuse(text: &str) -> String {
    match RedissonConfig::parse(text) {
        Err(Error::Misuse { message }) => message,
        other => panic!("{other:?}"),
    }
}

#[test]
fn each_kind_of_servers_is_a_url() {
    let cases = [
        ("singleServerConfig: {address: 'redis://127.0.0.1:6379', database: 3}", "redis", "127.0.0.1:6379/3"),
        (
            "sentinelServersConfig:\n  sentinelAddresses:\n    - redis://a:26379\n    - b:26380\n  masterName: orders",
            "redis-sentinel",
            "a:26379,b:26380/0#orders",
        ),
        (
            r#"{"clusterServersConfig": {"nodeAddresses": ["rediss://a:6379", "rediss://b:6379/"]}}"#,
            "rediss-cluster",
            "a:6379,b:6379",
        ),
        ("singleServerConfig: {address: 'redis+uds:///a b', database: 3}", "redis+unix", "/a%20b?db=3"),
        (
            "masterSlaveServersConfig: {masterAddress: 'redis://m:1', slaveAddresses: ['redis://s:1']}",
            "redis",
            "m:1/0",
        ),
        (
            "replicatedServersConfig: {nodeAddresses: ['rediss://a:1', 'rediss://b:1'], database: 2}",
            "rediss-replicated",
            "a:1,b:1/2",
        ),
    ];
    for (text, scheme, location) in cases {
        let config = parsed(text);
        assert_eq!((config.scheme, config.location.as_str()), (scheme, location), "{text}");
    }
}

#[test]
fn settings_of_locks_and_access_are_honoured() {
    let config = parsed(
        "lockWatchdogTimeout: 20000\nfairLockWaitTimeout: 5000\nslavesSyncTimeout: 700\n\
         username: outer\nclusterServersConfig:\n  nodeAddresses: [a:1]\n  password: 'p@ss/1'\n  timeout: 1500\n  \
         connectTimeout: 2500\n  shardedSubscriptionMode: OFF\n",
    );
    let settings = format!("{:?}", config.builder);
    for expected in ["20s", "5s", "1.5s", "2.5s", "Some(false)", "700ms", "at_least: None"] {
        assert!(settings.contains(expected), "{expected}: {settings}");
    }
    assert_eq!((config.user.as_deref(), config.password.as_deref()), (Some("outer"), Some("p@ss/1")));
    assert!(!format!("{config:?} {settings}").contains("p@ss"));
    let twice =
        parsed("password: outer\nsingleServerConfig: {address: 'redis://inner@a:1', password: inner}");
    assert_eq!(twice.password.as_deref(), Some("outer"));
    assert!(config.warnings.is_empty(), "{:?}", config.warnings);
    let off = parsed("checkLockSyncedSlaves: false\nclusterServersConfig: {nodeAddresses: [a:1]}");
    assert!(format!("{:?}", off.builder).contains("at_least: Some(0)"));
}

#[test]
fn every_unused_setting_is_a_warning() {
    let config = parsed(
        "threads: 16\ncodec: !<org.redisson.codec.Kryo5Codec> {}\nsingleServerConfig: {address: a, pool: 1}",
    );
    assert_eq!(
        config.warnings,
        ["`singleServerConfig.pool`: unknown setting", "settings without effect: threads"]
    );
}

#[track_caller]
fn warns(text: &str, expected: &[&str]) {
    let warnings = parsed(text).warnings;
    assert_eq!(warnings.len(), expected.len(), "{text}: {warnings:?}");
    for (warning, expected) in warnings.iter().zip(expected) {
        assert!(warning.contains(expected), "{text}: {warning}");
    }
}

#[test]
fn a_setting_with_another_effect_is_a_warning() {
    warns(
        "codec: !<org.redisson.codec.JsonJacksonCodec> {}\nsingleServerConfig: {address: a}",
        &["JsonJacksonCodec"],
    );
    warns("codec: !<com.acme.Kryo5Codec> {}\nsingleServerConfig: {address: a}", &["com.acme.Kryo5Codec"]);
    warns("clusterServersConfig: {nodeAddresses: [a]}", &["sharded_messages(false)"]);
    warns("clusterServersConfig: {nodeAddresses: [a], shardedSubscriptionMode: AUTO}", &[]);
    warns("singleServerConfig: {address: 'redis://a:1/3'}", &["`database`"]);
    // Without TLS, Redisson ignores these settings, too.
    for setting in ["sslTruststore: 'file:/trust.jks'", "sslVerificationMode: NONE", "sslKeystore: 'file:/k'"]
    {
        let key = setting.split(':').next().unwrap();
        let text = format!("singleServerConfig: {{address: 'redis://a:1', {setting}}}");
        warns(&text, &[key]);
        assert_eq!(parsed(&text).needs, []);
    }
}

fn needs(text: &str) -> Vec<Need> {
    parsed(text).needs.into_iter().map(|(need, _)| need).collect()
}

fn with(line: &str) -> String {
    format!("singleServerConfig:\n  address: rediss://a\n  {line}\n")
}

#[test]
fn settings_that_only_java_can_read_are_requested() {
    for (line, expected) in [
        ("sslTruststore: file:/trust.jks", vec![Need::Tls]),
        ("credentialsResolver: !<com.example.Vault> {}", vec![Need::Credentials]),
        ("credentialsResolver: !<org.redisson.config.DefaultCredentialsResolver> {}", vec![]),
        ("password: '{aes}abcd'", vec![Need::Credentials]),
        ("nameMapper: !<com.example.Mapper> {}", vec![Need::NameMapper]),
        ("nameMapper: !<com.example.DefaultNameMapper> {}", vec![Need::NameMapper]),
        ("nameMapper: !<org.redisson.api.DefaultNameMapper> {}", vec![]),
        ("nameMapper: null", vec![]),
    ] {
        assert_eq!(needs(&with(line)), expected, "{line}");
    }
    let given = parsed(&with("nameMapper: !<com.example.Mapper> {}")).name_mapper(str::to_owned);
    assert!(given.needs.is_empty());
    let json = r#"{"singleServerConfig":{"address":"a","nameMapper":{"class":"com.example.Mapper"}}}"#;
    assert_eq!(needs(json), [Need::NameMapper]);
}

/// Two sections may contain the same setting. Each class counts for its own section.
#[test]
fn a_class_counts_for_its_own_section() {
    for (key, default, need) in [
        ("nameMapper", "org.redisson.config.DefaultNameMapper", Need::NameMapper),
        ("credentialsResolver", "org.redisson.config.DefaultCredentialsResolver", Need::Credentials),
    ] {
        let both = |inner: &str, outer: &str| {
            format!("singleServerConfig:\n  address: a\n  {key}: !<{inner}> {{}}\n{key}: !<{outer}> {{}}\n")
        };
        assert_eq!(needs(&both(default, "com.acme.X")), [need]);
        assert_eq!(needs(&both("com.acme.X", default)), [need]);
        assert_eq!(needs(&both(default, default)), []);
    }
    let text = "singleServerConfig:\n  address: a\n  commandMapper: !<org.redisson.config.DefaultCommandMapper> {}\n\
                commandMapper: !<com.acme.X> {}\n";
    assert!(misuse(text).contains("com.acme.X"));
}

#[test]
fn a_mapper_with_only_a_prefix_is_supported() {
    let own = parsed(&with("nameMapper: !<org.redisson.config.PrefixNameMapper> {prefix: 'app:'}"));
    assert!(own.needs.is_empty() && own.warnings.is_empty(), "{own:?}");
    let theirs = parsed(&with("nameMapper: !<com.example.Prefix> {prefix: 'app:'}"));
    assert!(theirs.needs.is_empty());
    let warning = &theirs.warnings[0];
    for word in ["com.example.Prefix", "begins with it", "RedissonConfig::name_mapper"] {
        assert!(warning.contains(word), "{warning}");
    }
    for unknown in [
        "com.example.Prefix> {prefix: 'app:', suffix: x}",
        "org.redisson.config.PrefixNameMapper> {}",
        "org.redisson.config.PrefixNameMapper> {prefix: null}",
    ] {
        assert_eq!(needs(&with(&format!("nameMapper: !<{unknown}"))), [Need::NameMapper], "{unknown}");
    }
}

#[test]
fn server_names_are_verified_as_the_file_says() {
    let any_name = |config: &RedissonConfig| {
        format!("{:?}", config.builder).contains("danger_accept_any_server_name: true")
    };
    for (line, expected) in [
        ("sslVerificationMode: STRICT", None),
        ("sslVerificationMode: null", None),
        ("sslVerificationMode: CA_ONLY", Some("sslVerificationMode")),
        ("sslVerificationMode: NONE", Some("sslVerificationMode")),
        ("sslEnableEndpointIdentification: true", None),
        ("sslEnableEndpointIdentification: false", Some("sslEnableEndpointIdentification")),
    ] {
        let config = parsed(&with(line));
        assert_eq!(any_name(&config), expected.is_some(), "{line}");
        assert_eq!(config.warnings.len(), usize::from(expected.is_some()), "{line}");
        assert!(expected.is_none_or(|key| config.warnings[0].contains(key)), "{line}");
    }
    let both = parsed(&with("sslTruststore: file:/t\n  sslVerificationMode: CA_ONLY"));
    assert!(both.needs[0].1.contains("Tls::danger_accept_any_server_name"), "{:?}", both.needs);
}

#[test]
fn an_unknown_tls_setting_is_misuse() {
    for (line, key) in [
        ("sslVerificationMode: strict", "sslVerificationMode"),
        ("sslVerificationMode: FULL", "sslVerificationMode"),
        ("sslVerificationMode: ''", "sslVerificationMode"),
        ("sslVerificationMode: 'STRICT '", "sslVerificationMode"),
        ("sslVerificationMode: [STRICT]", "sslVerificationMode"),
        ("sslEnableEndpointIdentification: no", "sslEnableEndpointIdentification"),
        ("sslVerificationmode: STRICT", "sslVerificationmode"),
        ("sslTruststor: file:/t", "sslTruststor"),
        ("SslTruststore: file:/t", "SslTruststore"),
        ("sslProtocols: []", "sslProtocols"),
        ("sslProtocols: TLSv1.3", "sslProtocols"),
        ("sslProtocols: [TLSv1.3, TLSv1.4]", "sslProtocols"),
        ("sslProtocols: [TLSv1.1]", "sslProtocols"),
        ("sslProtocols: [TLSv1.3]\nsslProtocols: [TLSv1.2]", "sslProtocols"),
        ("sslCiphers: []", "sslCiphers"),
        ("sslCiphers: TLS_AES_128_GCM_SHA256", "sslCiphers"),
    ] {
        for text in [with(line), with(line).replace("rediss:", "redis:")] {
            let message = misuse(&text);
            assert!(message.contains(key), "{line}: {message}");
        }
    }
}

#[test]
fn protocols_and_ciphers_of_the_file_apply_to_the_connection() {
    let file = "sslProtocols: [TLSv1.1, TLSv1.3]\n  sslCiphers: [TLS_AES_128_GCM_SHA256]";
    for config in
        [parsed(&with(file)), parsed(&with(&format!("sslKeystore: file:/k\n  {file}"))).tls(Tls::new())]
    {
        let tls = format!("{:?}", config.builder);
        assert!(tls.contains("protocols: Some([\"TLSv1.3\"])"), "{tls}");
        assert!(tls.contains("cipher_suites: Some([\"TLS_AES_128_GCM_SHA256\"])"), "{tls}");
        assert!(config.warnings[0].contains("TLSv1.1"), "{:?}", config.warnings);
    }
    let own = parsed(&with(file)).tls(Tls::new().protocols(["TLSv1.2"]));
    assert!(format!("{:?}", own.builder).contains("protocols: Some([\"TLSv1.2\"])"));
}

/// Java takes everything after the scheme as the path, so it contains no user.
#[test]
fn the_address_of_a_unix_socket_shows_no_secret() {
    let message = misuse("singleServerConfig: {address: 'redis+uds://user:canary@/run/redis.sock'}");
    assert!(message.contains("username") && !message.contains("canary"), "{message}");
    let odd = parsed("singleServerConfig: {address: 'redis+uds:///run/redis.sock?pass=canary'}");
    let shown = format!("{odd:?}");
    assert!(shown.contains("/run/redis.sock") && !shown.contains("canary"), "{shown}");
}

#[test]
fn a_password_like_a_variable_is_not_shown() {
    for file in [
        "singleServerConfig: {address: a, password: 'x${canary}y'}",
        "singleServerConfig: {address: 'redis://:${canary}@a:1'}",
        "clusterServersConfig: {nodeAddresses: ['redis://:${canary}@a:1']}",
        "sentinelServersConfig: {sentinelAddresses: [a], masterName: m, sentinelPassword: '${canary}'}",
    ] {
        let message = misuse(file);
        assert!(message.contains("variable") && !message.contains("canary"), "{message}");
    }
}

/// A name in the file may contain control characters for a terminal or a log.
#[test]
fn names_in_the_file_are_escaped() {
    let config = parsed("singleServerConfig: {address: a, \"x\\ny\\e[31m\": 1}");
    assert!(!config.warnings[0].contains(char::is_control), "{:?}", config.warnings);
    let message = misuse("singleServerConfig: {address: a, commandMapper: {class: \"x\\ny\"}}");
    assert!(!message.contains(char::is_control), "{message:?}");
}

#[test]
fn credentials_may_be_part_of_the_address() {
    let known = |text: &str| {
        let config = parsed(text);
        assert!(!format!("{config:?}").contains("canary"));
        (config.user, config.password)
    };
    let some = |text: &str| Some(text.to_owned());
    let of = |keys: &str| format!("singleServerConfig: {{address: 'redis://u:canary@h:1'{keys}}}");
    assert_eq!(known(&of("")), (some("u"), some("canary")));
    assert_eq!(known(&of(", username: u, password: canary")), (some("u"), some("canary")));
    for other in [", password: canary2", ", username: v"] {
        assert!(!misuse(&of(other)).contains("canary"));
    }
    assert_eq!(known("singleServerConfig: {address: a, password: 0123}").1, some("0123"));
    let sentinels = "sentinelServersConfig: {sentinelAddresses: ['redis://canary@a:1'], masterName: m, password: canary2}";
    let config = parsed(sentinels);
    assert_eq!((config.password, config.sentinel_password), (some("canary2"), some("canary")));
}

#[test]
fn bad_files_are_misuse() {
    for (bad, what) in [
        ("", "must be a map"),
        ("a: [", "YAML"),
        ("threads: 1", "replicatedServersConfig"),
        ("spring: {redis: {redisson: {config: 'x: 1'}}}", "Spring"),
        ("singleServerConfig: {}", "singleServerConfig.address"),
        ("singleServerConfig: {address: 'http://a'}", "redis://"),
        ("singleServerConfig: {address: a, timeout: soon}", "number"),
        ("singleServerConfig: {address: 'redis+uds:///s', address: 'redis+uds:///t'}", "twice"),
        ("replicatedServersConfig: {nodeAddresses: ['redis+uds:///s']}", "singleServerConfig"),
        ("singleServerConfig: {address: a}\nclusterServersConfig: {nodeAddresses: [a]}", "2 server sections"),
        ("clusterServersConfig: {nodeAddresses: ['redis://a', 'rediss://b']}", "TLS"),
        ("clusterServersConfig: {nodeAddresses: [a], natMap: {a: b}}", "natMap"),
        ("clusterServersConfig: {nodeAddresses: [a], natMapper: !<com.acme.Nat> {}}", "natMapper"),
        ("replicatedServersConfig: {nodeAddresses: [a], natMapper: !<com.acme.Nat> {}}", "natMapper"),
        (
            r#"{"sentinelServersConfig":{"sentinelAddresses":["a"],"masterName":"m","natMapper":{"class":"x.Nat"}}}"#,
            "natMapper",
        ),
        (
            "sentinelServersConfig: {sentinelAddresses: [a], masterName: m, sentinelPassword: '{aes}canary'}",
            "unencrypted",
        ),
        ("sentinelServersConfig: {sentinelAddresses: [a], sentinelPassword: canary}", "masterName"),
        (
            "singleServerConfig: {address: '${NO_SUCH_VARIABLE_HERE}'}",
            "`singleServerConfig.address`: contains a `${..}` variable that is not set",
        ),
        ("singleServerConfig: {address: a, commandMapper: !<com.example.C> {}}", "commandMapper"),
    ] {
        let message = misuse(bad);
        assert!(message.contains(what) && !message.contains("canary"), "{bad}: {message}");
    }
    for fine in [
        "singleServerConfig: {address: a} # ${NO_SUCH_VARIABLE_HERE}",
        "singleServerConfig: {address: a, clientName: '${NO_SUCH_VARIABLE_HERE}'}",
        r#"{"clusterServersConfig":{"nodeAddresses":["a"],"natMapper":{"class":"org.redisson.api.DefaultNatMapper"}}}"#,
        "clusterServersConfig: {nodeAddresses: [a], natMap: {}, natMapper: !<org.redisson.api.DefaultNatMapper> {}}",
    ] {
        let _ = parsed(fine);
    }
}

proptest::proptest! {
    /// A short version of the fuzz target: fragments of files in random order.
    #[test]
    fn any_file_is_parsed_or_refused(
        pieces in proptest::collection::vec(proptest::prop_oneof![
            4 => proptest::sample::select(PIECES).prop_map(str::to_owned),
            1 => ".{0,4}",
        ], 0..24)
    ) {
        read_anything(&pieces.concat());
    }
}

const PIECES: &[&str] = &[
    "singleServerConfig",
    "clusterServersConfig",
    "nodeAddresses",
    "address",
    "password",
    "sslVerificationMode",
    "sslProtocols",
    "nameMapper",
    "timeout",
    "STRICT",
    "rediss://u:p@h:1",
    "redis+uds://u:p@/x",
    "${A}",
    "${",
    ":-",
    "}",
    ": ",
    ":\n",
    "\n",
    "  ",
    "- ",
    "? ",
    "[",
    "]",
    "{",
    ",",
    "&a ",
    "*a",
    "!<x.Y> ",
    "!!str ",
    "%TAG !t! x",
    "---\n",
    "'",
    "\"",
    "|\n",
    ">\n",
    "#",
    "~",
    "<<",
];
