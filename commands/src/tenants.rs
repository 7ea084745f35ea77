//! Tenants: prefixes of keys, each with limits for the filters and sketches in its keys, and sums of them.
//!
//! A value belongs to the tenant of the key in which it was created or loaded. If several prefixes fit, the longest one
//! counts. RENAME doesn't change the tenant, because the server doesn't tell the module of it; when other prefixes are
//! configured, the module counts all keys again.
//!
//! Tenants live until the server ends, because values refer to them on any thread. A prefix that is configured again
//! gets the same one.

use crate::config::{Refusal, bytes};
use crate::error::CommandError;
use crate::metrics::Counter;
use bloomery::metrics::Sum;
use std::ffi::CStr;
use std::ptr;
use std::sync::{Mutex, PoisonError};

/// Maximum number of prefixes. Each creation of a filter compares its key with all of them.
const MAX_TENANTS: usize = 256;

/// The text for no tenants.
const NONE: &str = "none";

/// A prefix, and the sums over the values of its keys. Sketches count as filters.
#[derive(Debug)]
pub struct Tenant {
    /// The prefix.
    pub prefix: String,
    /// Number of filters.
    pub filters: Sum,
    /// Bytes of their cells.
    pub bytes: Sum,
    /// Number of commands or items that were refused because of the tenant's limits.
    pub refused: Counter,
}

/// All tenants that have been configured.
static TENANTS: Mutex<Vec<&'static Tenant>> = Mutex::new(Vec::new());

impl Tenant {
    /// The tenant with this prefix.
    fn with(prefix: &str) -> &'static Tenant {
        let mut tenants = TENANTS.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = tenants.iter().find(|tenant| tenant.prefix == prefix) {
            return known;
        }
        let (filters, bytes, refused) = (Sum::new(), Sum::new(), Counter::new());
        let tenant = Box::leak(Box::new(Tenant { prefix: prefix.to_owned(), filters, bytes, refused }));
        tenants.push(tenant);
        tenant
    }
}

/// What a tenant may have. 0 means as much as the server.
#[derive(Clone, Copy, Debug)]
#[expect(missing_docs, reason = "the names say it")]
pub struct Quota {
    pub tenant: &'static Tenant,
    pub max_bytes: u64,
    pub max_filters: u64,
}

impl PartialEq for Quota {
    fn eq(&self, other: &Quota) -> bool {
        let limits = |quota: &Quota| (quota.max_bytes, quota.max_filters);
        ptr::eq(self.tenant, other.tenant) && limits(self) == limits(other)
    }
}

/// A number that INFO shows for each tenant, and the exporter as a metric.
#[expect(missing_docs, reason = "the names say it")]
pub struct Figure {
    pub name: &'static CStr,
    pub value: fn(&Quota) -> u64,
    pub is_counter: bool,
    pub help: &'static str,
}

const fn gauge(name: &'static CStr, help: &'static str, value: fn(&Quota) -> u64) -> Figure {
    Figure { name, value, is_counter: false, help }
}

/// What INFO shows for each tenant, after its [`PREFIX`].
pub const FIGURES: [Figure; 5] = [
    gauge(c"bytes", "Bytes of the cells of the tenant's filters.", |quota| quota.tenant.bytes.get()),
    gauge(c"bytes_max", "Maximum number of these bytes, or 0.", |quota| quota.max_bytes),
    gauge(c"filters", "The tenant's filters and sketches.", |quota| quota.tenant.filters.get()),
    gauge(c"filters_max", "Maximum number of these filters, or 0.", |quota| quota.max_filters),
    Figure {
        is_counter: true,
        ..gauge(c"refused", "Commands or items refused because of the tenant's limits.", |quota| {
            quota.tenant.refused.get()
        })
    },
];

/// The name of a tenant's prefix in INFO.
pub const PREFIX: &CStr = c"prefix";

impl Quota {
    /// Checks whether the value of a key may grow to `total` bytes. `own` is how many bytes of it the tenant's sum has;
    /// `None` if the key is empty. Both are behind by what the running command has added to the value so far.
    ///
    /// # Errors
    /// [`CommandError::TenantBytes`] or [`CommandError::TenantFilters`].
    pub fn admit(&self, own: Option<u64>, total: u64) -> Result<(), CommandError> {
        let (bytes, filters) = (self.tenant.bytes.get(), self.tenant.filters.get());
        let others = bytes.saturating_sub(own.unwrap_or(0));
        let (prefix, more) = (|| self.tenant.prefix.clone(), total.saturating_sub(own.unwrap_or(0)));
        let refused = if self.max_bytes > 0 && more > 0 && others.saturating_add(total) > self.max_bytes {
            CommandError::TenantBytes { prefix: prefix(), bytes, more, most: self.max_bytes }
        } else if self.max_filters > 0 && own.is_none() && filters >= self.max_filters {
            CommandError::TenantFilters { prefix: prefix(), filters, most: self.max_filters }
        } else {
            return Ok(());
        };
        self.tenant.refused.add(1);
        Err(refused)
    }
}

/// The value of the option `tenants`: `PREFIX BYTES FILTERS` for each, or [`NONE`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tenants(&'static [Quota]);

impl Tenants {
    /// No tenants.
    pub const NONE: Tenants = Tenants(&[]);

    /// The tenants, as configured.
    pub fn quotas(self) -> &'static [Quota] {
        self.0
    }

    /// The tenant to which the value of a key belongs.
    pub fn of(self, key: &[u8]) -> Option<&'static Quota> {
        let fit = self.0.iter().filter(|quota| key.starts_with(quota.tenant.prefix.as_bytes()));
        fit.max_by_key(|quota| quota.tenant.prefix.len())
    }

    /// Whether the prefixes of both are the same. If they are, no value changes its tenant.
    pub fn has_prefixes_of(self, other: Tenants) -> bool {
        let is_in = |all: Tenants, one: &Quota| all.0.iter().any(|quota| ptr::eq(quota.tenant, one.tenant));
        self.0.len() == other.0.len() && self.0.iter().all(|quota| is_in(other, quota))
    }

    /// The value as text.
    pub(super) fn text(self) -> String {
        if self.0.is_empty() {
            return NONE.to_owned();
        }
        let words =
            |quota: &Quota| format!("{} {} {}", quota.tenant.prefix, quota.max_bytes, quota.max_filters);
        self.0.iter().map(words).collect::<Vec<_>>().join(" ")
    }

    /// Reads a text. A new list is leaked, which takes some bytes whenever an operator changes it.
    pub(super) fn parse(text: &str) -> Result<Tenants, Refusal> {
        let expected = Refusal::Expected(
            "none, or for each tenant PREFIX BYTES FILTERS, with 0 for no limit: shop: 1gb 1000 ads: 512mb 0",
        );
        if text.eq_ignore_ascii_case(NONE) {
            return Ok(Tenants::NONE);
        }
        let words: Vec<&str> = text.split_ascii_whitespace().collect();
        let mut quotas: Vec<Quota> = Vec::new();
        for words in words.chunks(3) {
            let &[prefix, most_bytes, most_filters] = words else { return Err(expected) };
            // INFO shows prefixes in a list of `name=value`.
            let is_plain = prefix.bytes().all(|byte| byte.is_ascii_graphic() && !b",=\"'\\".contains(&byte));
            let is_known = quotas.iter().any(|quota| quota.tenant.prefix == prefix);
            let (Some(max_bytes), Ok(max_filters)) = (bytes(most_bytes), most_filters.parse()) else {
                return Err(expected);
            };
            if !is_plain || is_known || quotas.len() == MAX_TENANTS {
                return Err(Refusal::Expected(
                    "at most 256 different prefixes, of ASCII characters without quotes, commas, = and \\",
                ));
            }
            quotas.push(Quota { tenant: Tenant::with(prefix), max_bytes, max_filters });
        }
        if quotas.is_empty() { Err(expected) } else { Ok(Tenants(quotas.leak())) }
    }
}

/// A value's share of the sums of its tenant. It is subtracted when it is dropped.
#[derive(Default)]
pub struct Share(Option<Box<Counted>>);

struct Counted {
    tenant: &'static Tenant,
    bytes: u64,
}

impl Share {
    /// The share of a value with this number of bytes.
    pub fn new(quota: Option<&Quota>, bytes: impl FnOnce() -> u64) -> Share {
        Share(quota.map(|quota| {
            let (tenant, bytes) = (quota.tenant, bytes());
            tenant.filters.add(1);
            tenant.bytes.add(bytes);
            Box::new(Counted { tenant, bytes })
        }))
    }

    /// Whether the value belongs to this tenant.
    pub fn is_of(&self, quota: Option<&Quota>) -> bool {
        let tenant = self.0.as_ref().map(|counted| ptr::from_ref(counted.tenant));
        tenant == quota.map(|quota| ptr::from_ref(quota.tenant))
    }

    /// The number of bytes, as last counted.
    pub fn bytes(&self) -> u64 {
        self.0.as_ref().map_or(0, |counted| counted.bytes)
    }

    /// Counts the bytes that the value has now.
    #[inline]
    pub fn update(&mut self, bytes: impl FnOnce() -> u64) {
        if let Some(counted) = &mut self.0 {
            let before = std::mem::replace(&mut counted.bytes, bytes());
            counted.tenant.bytes.change(before, counted.bytes);
        }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.tenant.filters.sub(1);
        self.tenant.bytes.sub(self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_read_and_written() {
        for (given, text) in [
            ("none", "none"),
            ("NONE", "none"),
            ("a: 1kb 5", "a: 1024 5"),
            ("  a: 0 0\tb: 1gb 0 ", "a: 0 0 b: 1073741824 0"),
        ] {
            assert_eq!(Tenants::parse(given).map(Tenants::text), Ok(text.to_owned()));
        }
        let many: String = (0..257).map(|number| format!("{number}: 0 0 ")).collect();
        for wrong in ["", "a:", "a: 1", "a: 1 x", "a: -1 1", "a: 1 1 a: 2 2", "a,b 1 1", "é 1 1", &many] {
            assert!(Tenants::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_longest_prefix_counts() {
        let tenants = Tenants::parse("longest: 0 1 longest:er: 0 2 lo 0 3").unwrap();
        let most = |key: &str| tenants.of(key.as_bytes()).map(|quota| quota.max_filters);
        let keys = ["longest:x", "longest:er:x", "longest:er", "lo", "long", "l", ""];
        assert_eq!(keys.map(most), [Some(1), Some(2), Some(1), Some(3), Some(3), None, None]);
        let same = Tenants::parse("lo 1 1 longest:er: 0 2 longest: 0 1").unwrap();
        assert!(tenants.has_prefixes_of(same) && !tenants.has_prefixes_of(Tenants::parse("lo 0 0").unwrap()));
    }

    #[test]
    fn shares_add_up_and_limits_hold() {
        let quota = *Tenants::parse("shares: 100 2").unwrap().of(b"shares:a").unwrap();
        let mut first = Share::new(Some(&quota), || 60);
        assert_eq!((quota.admit(None, 40), quota.admit(Some(first.bytes()), 100)), (Ok(()), Ok(())));
        assert!(matches!(
            quota.admit(Some(60), 101),
            Err(CommandError::TenantBytes { bytes: 60, more: 41, .. })
        ));
        first.update(|| 10);
        let second = Share::new(Some(&quota), || 95);
        assert_eq!((quota.admit(Some(95), 95), quota.tenant.refused.get()), (Ok(()), 1), "it doesn't grow");
        assert!(matches!(quota.admit(None, 0), Err(CommandError::TenantFilters { filters: 2, most: 2, .. })));
        drop((first, second));
        let Tenant { filters, bytes, refused, .. } = quota.tenant;
        assert_eq!((filters.get(), bytes.get(), refused.get()), (0, 0, 2));
    }
}
