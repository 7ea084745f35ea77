//! Command names of a module that was loaded with PREFIX x: `x.ADD` for `BF.ADD`, `xCF.ADD` for `CF.ADD`.

/// The module's prefix if it was loaded without PREFIX.
pub(crate) const DEFAULT: &str = "bf";

/// Replaces the names of the module's commands with their names under `prefix`. `commands` is RESP, ready to be sent.
pub(super) fn renamed(commands: &[u8], prefix: &str) -> Vec<u8> {
    let mut renamed = Vec::with_capacity(commands.len() + 64);
    let mut rest = commands;
    while let Some((count, after)) = number(rest, b'*') {
        renamed.extend_from_slice(&rest[..rest.len() - after.len()]);
        rest = after;
        for index in 0..count {
            let Some((length, after)) = number(rest, b'$') else { break };
            let Some((argument, end)) = after.split_at_checked(length + 2) else { break };
            match name(&argument[..length], prefix).filter(|_| index == 0) {
                Some(name) => renamed.extend_from_slice(format!("${}\r\n{name}\r\n", name.len()).as_bytes()),
                None => renamed.extend_from_slice(&rest[..rest.len() - end.len()]),
            }
            rest = end;
        }
    }
    renamed.extend_from_slice(rest);
    renamed
}

/// The name of a module command under `prefix`; `None` for the server's own commands.
fn name(command: &[u8], prefix: &str) -> Option<String> {
    let (family, verb) = std::str::from_utf8(command).ok()?.split_once('.')?;
    match family {
        "BF" => Some(format!("{prefix}.{verb}")),
        "CF" => Some(format!("{prefix}CF.{verb}")),
        _ => None,
    }
}

/// Parses the number in a line such as `$3`, and returns it with the bytes after the line.
fn number(bytes: &[u8], mark: u8) -> Option<(usize, &[u8])> {
    let line = bytes.strip_prefix(&[mark])?;
    let end = memchr::memmem::find(line, b"\r\n")?;
    Some((std::str::from_utf8(&line[..end]).ok()?.parse().ok()?, &line[end + 2..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_change_and_nothing_else() {
        let mut pipeline = redis::pipe();
        pipeline
            .cmd("BF.ADD")
            .arg("BF.ADD")
            .arg(b"a\r\n$3\r\n")
            .cmd("GET")
            .arg("CF.ADD")
            .cmd("CF.ADD")
            .arg("");
        let mut expected = redis::pipe();
        expected
            .cmd("x.ADD")
            .arg("BF.ADD")
            .arg(b"a\r\n$3\r\n")
            .cmd("GET")
            .arg("CF.ADD")
            .cmd("xCF.ADD")
            .arg("");
        assert_eq!(renamed(&pipeline.get_packed_pipeline(), "x"), expected.get_packed_pipeline());
    }

    /// Incomplete commands are sent unchanged.
    #[test]
    fn what_ends_early_stays_what_it_is() {
        let whole = redis::cmd("SET").arg("key").arg("value").get_packed_command();
        for end in 0..=whole.len() {
            assert_eq!(renamed(&whole[..end], "x"), &whole[..end]);
        }
    }
}
