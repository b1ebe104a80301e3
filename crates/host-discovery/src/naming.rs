//! Names of hosts, made from what a stranger's machine says about itself.
//!
//! A name is a prefix, a value and a suffix. It ends up in label values, in names of secrets and
//! of nodes, so it is an RFC 1123 label: lower-case letters, digits and `-`, at most
//! [`LONGEST`] characters. Values are untrusted: whatever comes in, what comes out is such a
//! label or a reason.

use std::net::IpAddr;

use api_types::metal3::HardwareDetail;
use sha2::{Digest as _, Sha256};

use crate::inventory::Facts;
use crate::ip::identifies;
use crate::mac::Mac;
use crate::node_id::NodeId;

/// Characters that a label may have.
pub const LONGEST: usize = 63;

/// Characters of an over-long value that are kept at least; with fewer nobody would recognise it.
const SHORTEST_CUT: usize = 4;

/// Characters of the hash that ends an over-long value, with the hyphen before them.
const HASHED: usize = 9;

/// Characters that prefix and suffix may have together so that every value has room, if need be cut.
pub const ROOMY: usize = LONGEST - SHORTEST_CUT - HASHED;

/// Stands before the identifier where the user gave neither prefix nor suffix: a bare UUID is not
/// accepted as the name of a host.
const LAST_RESORT_PREFIX: &str = "host-";

/// Serial numbers that makers leave in machines that have none, as [`clean`] writes them. Two
/// machines with the same one are not the same machine.
const PLACEHOLDER_SERIALS: &[&str] = &[
    "0123456789",
    "123456789",
    "1234567890",
    "12345678",
    "base-board-serial-number",
    "chassis-serial-number",
    "default",
    "default-string",
    "empty",
    "invalid",
    "n-a",
    "none",
    "not-applicable",
    "not-available",
    "not-present",
    "not-provided",
    "not-specified",
    "null",
    "o-e-m",
    "oem",
    "serial-number",
    "system-product-name",
    "system-serial-number",
    "tbd",
    "unknown",
];

/// First labels of names that a ramdisk has by default, beside everything that begins with
/// `localhost`.
const PLACEHOLDER_HOSTNAMES: &[&str] =
    &["centos", "debian", "host", "ironic-python-agent", "linux", "none", "null", "ubuntu"];

/// Why a value cannot name a host.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Unusable {
    /// The machine did not say it.
    Missing,
    /// It is what a machine says that was never given a value of its own.
    Placeholder(String),
    /// Nothing of it, or too little, can stand in a name.
    TooShort(String),
    /// A host name that is an address: the ramdisk had none.
    HostnameIsAddress(String),
    /// An address that other machines can have at the same time.
    NotGlobal(IpAddr),
    /// The name would be a UUID, which is not accepted as the name of a host.
    Uuid(String),
    /// Prefix and suffix leave no room.
    NoRoom,
}

/// Prefix and suffix, of which it is known that they can stand in a name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Template {
    prefix: String,
    suffix: String,
}

impl Template {
    /// Takes prefix and suffix as the user wrote them; none if no name can have them. The CRD refuses those, and says of which
    /// part and why.
    pub fn new(prefix: &str, suffix: &str) -> Option<Self> {
        let is_legal = prefix.chars().chain(suffix.chars()).all(is_name_character)
            && !prefix.starts_with('-')
            && !suffix.ends_with('-')
            && prefix.len() + suffix.len() < LONGEST;
        is_legal.then(|| Self { prefix: prefix.to_owned(), suffix: suffix.to_owned() })
    }

    /// The name that a value makes, with a tail that distinguishes it from another one. A name that would be too long loses the
    /// end of its value and gets eight digits of the SHA-256 of the whole value instead.
    pub fn name(&self, value: &str, tail: &str) -> Result<String, Unusable> {
        let Self { prefix, suffix } = self;
        let whole = [prefix, value, suffix, tail].concat();
        let name = if whole.len() <= LONGEST {
            whole
        } else {
            let digits = digits_of(value);
            let rest = prefix.len() + suffix.len() + tail.len() + HASHED;
            let room = LONGEST.saturating_sub(rest);
            if room < SHORTEST_CUT {
                return Err(Unusable::NoRoom);
            }
            let kept = value.get(..room).unwrap_or(value).trim_end_matches('-');
            format!("{prefix}{kept}-{digits}{suffix}{tail}")
        };
        if is_uuid(&name) { Err(Unusable::Uuid(name)) } else { Ok(name) }
    }
}

/// Eight digits that tell a text which is cut from others of the same beginning.
pub fn digits_of(text: &str) -> String {
    let [a, b, c, d, ..]: [u8; 32] = Sha256::digest(text.as_bytes()).into();
    format!("{:08x}", u32::from_be_bytes([a, b, c, d]))
}

/// The name that a machine gets, and how it came to that.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Named {
    /// The name.
    pub name: String,
    /// The name to take where another machine has that one; none where prefix and suffix leave no room for a longer one.
    pub beside: Option<String>,
    /// Which detail named it.
    pub from: HardwareDetail,
    /// Details that came first and could not be used.
    pub passed_over: Vec<(HardwareDetail, Unusable)>,
}

impl Named {
    /// Both names, the first one first.
    pub fn both(&self) -> impl Iterator<Item = &String> {
        std::iter::once(&self.name).chain(&self.beside)
    }
}

/// Names a machine by the detail that was asked for, else by the fallback, else by its boot MAC
/// address, else by its identifier. A machine is never left without a name because its firmware
/// holds a placeholder; what was passed over is told.
///
/// `value_of` gives what can stand in a name of a detail.
pub fn choose(
    template: &Template,
    detail: HardwareDetail,
    fallback: HardwareDetail,
    boot_mac: Mac,
    value_of: impl Fn(HardwareDetail) -> Result<String, Unusable>,
) -> Result<Named, Unusable> {
    let tail = format!("-{}", boot_mac.tail());
    let names = |template: &Template, from| {
        let value = value_of(from)?;
        let name = template.name(&value, "")?;
        Ok::<_, Unusable>((name, template.name(&value, &tail).ok()))
    };
    let mut passed_over = Vec::new();
    for from in [detail, fallback, HardwareDetail::BootMac] {
        if passed_over.iter().any(|(tried, _)| *tried == from) {
            continue;
        }
        match names(template, from) {
            Ok((name, beside)) => return Ok(Named { name, beside, from, passed_over }),
            Err(why) => passed_over.push((from, why)),
        }
    }
    let from = HardwareDetail::ProvisioningId;
    let mut last = template.clone();
    if last.prefix.is_empty() && last.suffix.is_empty() {
        LAST_RESORT_PREFIX.clone_into(&mut last.prefix);
    }
    let (name, beside) = names(&last, from)?;
    Ok(Named { name, beside, from, passed_over })
}

/// The middle of a name: what can stand there of a detail.
pub fn value(detail: HardwareDetail, facts: &Facts, node: NodeId) -> Result<String, Unusable> {
    let said = |text: Option<&str>| {
        let text = text.unwrap_or_default().trim();
        if text.is_empty() { Err(Unusable::Missing) } else { Ok(text.to_owned()) }
    };
    match detail {
        HardwareDetail::Hostname => hostname(&said(facts.hostname.as_deref())?),
        HardwareDetail::Ip => address(facts.ip.ok_or(Unusable::Missing)?),
        HardwareDetail::SerialNumber => serial_number(&said(facts.serial_number.as_deref())?),
        HardwareDetail::BootMac => {
            let mac = facts.boot_mac.ok_or(Unusable::Missing)?;
            Ok(mac.octets().map(|byte| format!("{byte:02x}")).join("-"))
        }
        HardwareDetail::ProvisioningId => Ok(node.to_string()),
    }
}

/// The whole name, dots included: two machines of different domains are two machines.
fn hostname(text: &str) -> Result<String, Unusable> {
    let text = text.trim_end_matches('.');
    let first = text.split('.').next().unwrap_or_default().to_ascii_lowercase();
    if first.starts_with("localhost") || PLACEHOLDER_HOSTNAMES.contains(&first.as_str()) {
        return Err(Unusable::Placeholder(quotable(text)));
    }
    let address = text.split('%').next().unwrap_or_default();
    if address.parse::<IpAddr>().is_ok() {
        return Err(Unusable::HostnameIsAddress(quotable(text)));
    }
    let cleaned = clean(text);
    if cleaned.is_empty() { Err(Unusable::TooShort(quotable(text))) } else { Ok(cleaned) }
}

fn address(ip: IpAddr) -> Result<String, Unusable> {
    let ip = ip.to_canonical();
    if !identifies(ip) {
        return Err(Unusable::NotGlobal(ip));
    }
    Ok(match ip {
        IpAddr::V4(v4) => v4.octets().map(|byte| byte.to_string()).join("-"),
        // All digits: the short form can begin or end with a separator.
        IpAddr::V6(v6) => v6.segments().map(|part| format!("{part:04x}")).join("-"),
    })
}

fn serial_number(text: &str) -> Result<String, Unusable> {
    let cleaned = clean(text);
    let placeholder = PLACEHOLDER_SERIALS.contains(&cleaned.as_str())
        || cleaned.starts_with("to-be-filled")
        || text.chars().all(|c| c == '0' || !c.is_alphanumeric())
        || is_one_character(&text.to_lowercase());
    if placeholder {
        return Err(Unusable::Placeholder(quotable(text)));
    }
    if cleaned.len() < 3 { Err(Unusable::TooShort(quotable(text))) } else { Ok(cleaned) }
}

fn is_one_character(text: &str) -> bool {
    let mut characters = text.chars();
    let first = characters.next();
    characters.all(|c| Some(c) == first)
}

/// Lower-case letters and digits, with one hyphen for each run of anything else between them.
fn clean(text: &str) -> String {
    let mut cleaned = String::new();
    for c in text.chars().map(|c| c.to_ascii_lowercase()) {
        if c.is_ascii_alphanumeric() {
            cleaned.push(c);
        } else if !cleaned.is_empty() && !cleaned.ends_with('-') {
            cleaned.push('-');
        }
    }
    cleaned.truncate(cleaned.trim_end_matches('-').len());
    cleaned
}

fn is_name_character(c: char) -> bool {
    c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-'
}

/// Whether a name would be taken for a UUID: the operator's webhook reads the form with hyphens, the
/// one of 32 digits, and the one in braces, of which it does not look at the braces.
pub fn is_uuid(name: &str) -> bool {
    let within = if name.len() == 38 { name.get(1..37).unwrap_or_default() } else { name };
    NodeId::parse(within).is_some()
        || name.len() == 32 && name.bytes().all(|b| b.is_ascii_hexdigit())
}

/// A stranger's text as it may stand in a sentence: short, on one line, nothing that a terminal or
/// a log reader would act upon.
pub fn quotable(text: &str) -> String {
    const LONGEST_QUOTE: usize = 48;
    let mut quoted: String = text.chars().take(LONGEST_QUOTE).collect();
    quoted = quoted.escape_debug().to_string();
    if text.chars().nth(LONGEST_QUOTE).is_some() {
        quoted.push('…');
    }
    quoted
}
