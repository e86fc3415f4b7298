//! What programs inside are told of the proxy, and what the caller said of one of its own. Text only.
#![forbid(unsafe_code)]

use super::{PORT, Upstream};
use crate::model::hosts::HostRule;
use crate::sandbox::SandboxError;
use std::collections::BTreeMap;

type Variables = BTreeMap<Vec<u8>, Vec<u8>>;

/// The variables that name a proxy, the weightiest first, in the order in which the caller's is looked for.
const PROXIES: [&str; 6] =
    ["https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY", "http_proxy", "HTTP_PROXY"];
/// The variables that name hosts to be reached without one.
const DIRECT: [&str; 2] = ["no_proxy", "NO_PROXY"];
/// Variables of programs that do not look at the usual ones.
const OF_PROGRAMS: [&str; 5] =
    ["npm_config_proxy", "npm_config_https_proxy", "YARN_HTTP_PROXY", "YARN_HTTPS_PROXY", "CARGO_HTTP_PROXY"];
/// Options for Java's virtual machine, where Maven and Gradle take them from.
const JAVA: [&str; 2] = ["MAVEN_OPTS", "GRADLE_OPTS"];

/// Puts in what tells programs of the proxy, in the place of what the caller passed in: that one is ours to go by.
pub(in crate::sandbox) fn put<'h>(env: &mut Variables, hosts: impl Iterator<Item = &'h HostRule>) {
    let url = format!("http://127.0.0.1:{PORT}");
    for name in PROXIES.into_iter().chain(OF_PROGRAMS) {
        env.insert(name.as_bytes().to_vec(), url.clone().into_bytes());
    }
    // A server that a step starts for itself is not asked for by way of us, unless a host of that name is named.
    let own = hosts.into_iter().any(HostRule::is_of_the_machine);
    for name in DIRECT {
        let value = if own { "" } else { "localhost,127.0.0.1,::1" };
        env.insert(name.as_bytes().to_vec(), value.as_bytes().to_vec());
    }
    // Node from 24 on has its own `fetch` go by the usual ones (nodejs.org/api/cli.html).
    env.insert(b"NODE_USE_ENV_PROXY".to_vec(), b"1".to_vec());
    let own = if own { " -Dhttp.nonProxyHosts=" } else { "" };
    let java = format!(
        "-Dhttp.proxyHost=127.0.0.1 -Dhttp.proxyPort={PORT} -Dhttps.proxyHost=127.0.0.1 -Dhttps.proxyPort={PORT} \
         -Daether.connector.http.useSystemProperties=true -Daether.transport.http.useSystemProperties=true{own}"
    );
    for name in JAVA {
        let value = env.entry(name.as_bytes().to_vec()).or_default();
        if !value.is_empty() {
            value.push(b' ');
        }
        value.extend(java.as_bytes());
    }
}

/// The proxy that the caller passed in, if any.
///
/// # Errors
/// It is not one by HTTP.
pub(in crate::sandbox) fn upstream(env: &Variables) -> Result<Option<Upstream>, SandboxError> {
    let value = |name: &&str| env.get(name.as_bytes()).filter(|value| !value.is_empty());
    let Some((name, url)) = PROXIES.iter().find_map(|name| Some((*name, value(name)?))) else {
        return Ok(None);
    };
    // Its value is not told: it may have a password in it.
    let wrong = |problem: &'static str| SandboxError::Upstream { name, problem };
    let url = std::str::from_utf8(url).map_err(|_| wrong("is not text"))?;
    let rest = match url.split_once("://") {
        Some((scheme, rest)) if scheme.eq_ignore_ascii_case("http") => rest,
        Some(_) => return Err(wrong("is of another kind than http")),
        None => url,
    };
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let (user, place) =
        authority.rsplit_once('@').map_or((None, authority), |(user, place)| (Some(user), place));
    let (host, port) = match place.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => {
            (host, port.parse().map_err(|_| wrong("has no port that is a number"))?)
        }
        // As curl takes it (curl(1), --proxy).
        _ => (place, 1080),
    };
    if host.is_empty() || !host.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(wrong("names no host"));
    }
    let direct = DIRECT.iter().find_map(value).map(|list| String::from_utf8_lossy(list).into_owned());
    let direct = direct.iter().flat_map(|list| list.split([',', ' '])).filter(|entry| !entry.is_empty());
    let authorization = user.map(|user| format!("Basic {}", base64(&unescaped(user))));
    Ok(Some(Upstream {
        host: host.to_owned(),
        port,
        authorization,
        direct: direct.map(str::to_ascii_lowercase).collect(),
    }))
}

/// A part of an address with its `%41` turned back (RFC 3986, 2.1).
fn unescaped(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let digits = after.get(..2).and_then(|two| std::str::from_utf8(two).ok());
        match digits.and_then(|two| u8::from_str_radix(two, 16).ok()).filter(|_| *first == b'%') {
            Some(byte) => {
                bytes.push(byte);
                rest = &after[2..];
            }
            None => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    bytes
}

/// RFC 4648, 4.
fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for three in bytes.chunks(3) {
        let number =
            (0..3).fold(0_u32, |number, at| number << 8 | u32::from(three.get(at).copied().unwrap_or(0)));
        for at in 0..4 {
            let index = usize::try_from(number >> (18 - 6 * at) & 63).unwrap_or(0);
            text.push(if at > three.len() { '=' } else { char::from(LETTERS[index]) });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_callers_proxy_is_read_with_its_password_and_never_told() {
        let env = |value: &str| Variables::from([(b"HTTPS_PROXY".to_vec(), value.as_bytes().to_vec())]);
        let read = |value: &str| upstream(&env(value)).unwrap().unwrap();
        let with = read("http://us%65r:p%40ss@proxy.example:3128/");
        assert_eq!((with.host.as_str(), with.port), ("proxy.example", 3128));
        assert_eq!(with.authorization.as_deref(), Some("Basic dXNlcjpwQHNz"));
        assert!(!format!("{with:?}").contains("dXNl"));
        assert_eq!(read("proxy.example:81").port, 81);
        for wrong in ["socks5://u:secret@h:1", "http://", "http://h:x"] {
            let told = upstream(&env(wrong)).unwrap_err().to_string();
            assert!(told.contains("HTTPS_PROXY") && !told.contains("secret"), "{told}");
        }
        assert_eq!(upstream(&Variables::new()).unwrap(), None);
        for (bytes, text) in [("", ""), ("a", "YQ=="), ("ab", "YWI="), ("abc", "YWJj")] {
            assert_eq!(base64(bytes.as_bytes()), text);
        }
    }
}
