//! What a sale stores, and the requests that change it: the one place that builds them.
//!
//! All keys of an article are of one slot. Integers are little-endian.
//!
//! | key behind the prefix | value |
//! |---|---|
//! | `{SKU}:stock` | u64 initial, u64 available, u64 held, u64 sold |
//! | `{SKU}:buyer:NUMBER` | u32 units held or sold; u32 buys, pays, cancels and expiries ever |
//! | `{SKU}:hold:CART` | u32 buyer, u32 units; expires, and gives the units back then |
//! | `{SKU}:order:CART` | u32 buyer, u32 units |

use penstock_net::apply::Apply;

/// Reasons of guards.
pub(crate) const SOLD_OUT: u8 = 1;
pub(crate) const OVER_LIMIT: u8 = 2;
pub(crate) const HOLD_GONE: u8 = 3;

/// Offsets in the value of a stock.
const AVAILABLE: u32 = 8;
const HELD: u32 = 16;
const SOLD: u32 = 24;
/// Offsets in the value of a buyer.
const UNITS: u32 = 0;
const BUYS: u32 = 4;
const PAYS: u32 = 8;
const CANCELS: u32 = 12;
const EXPIRIES: u32 = 16;
const BUYER_BYTES: usize = 20;

/// The names of a sale's keys.
#[derive(Clone, Debug)]
pub(crate) struct Shop {
    prefix: String,
}

/// What one cart is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Purchase {
    pub(crate) sku: u32,
    pub(crate) buyer: u32,
    pub(crate) cart: u64,
    pub(crate) units: u32,
}

/// The value of a stock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Stock {
    pub(crate) initial: u64,
    pub(crate) available: u64,
    pub(crate) held: u64,
    pub(crate) sold: u64,
}

/// The value of a buyer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct BuyerRecord {
    pub(crate) units: u32,
    pub(crate) buys: u32,
    pub(crate) pays: u32,
    pub(crate) cancels: u32,
    pub(crate) expiries: u32,
}

/// The value of a hold or an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CartRecord {
    pub(crate) buyer: u32,
    pub(crate) units: u32,
}

/// A record of the sale, read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Record {
    Stock(Stock),
    Buyer(u32, BuyerRecord),
    Hold(u64, CartRecord),
    Order(u64, CartRecord),
}

impl Shop {
    pub(crate) fn new(prefix: String) -> Shop {
        Shop { prefix }
    }

    /// What all keys begin with.
    pub(crate) fn prefix(&self) -> &str {
        &self.prefix
    }

    pub(crate) fn stock_key(&self, sku: u32) -> Vec<u8> {
        format!("{}{{{sku}}}:stock", self.prefix).into_bytes()
    }

    fn buyer_key(&self, it: &Purchase) -> Vec<u8> {
        format!("{}{{{}}}:buyer:{}", self.prefix, it.sku, it.buyer).into_bytes()
    }

    fn hold_key(&self, it: &Purchase) -> Vec<u8> {
        format!("{}{{{}}}:hold:{}", self.prefix, it.sku, it.cart).into_bytes()
    }

    fn order_key(&self, it: &Purchase) -> Vec<u8> {
        format!("{}{{{}}}:order:{}", self.prefix, it.sku, it.cart).into_bytes()
    }

    /// Takes units out of the stock into a hold, which gives them back when it expires.
    pub(crate) fn buy(&self, it: &Purchase, limit: u32, hold_ms: u64) -> Apply {
        let units = u64::from(it.units);
        let mut apply = Apply::new();
        let stock = apply.key(&self.stock_key(it.sku));
        let buyer = apply.key(&self.buyer_key(it));
        let hold = apply.key(&self.hold_key(it));
        let limit_left = u64::from(limit.saturating_sub(it.units));
        apply
            .then(stock.u64(AVAILABLE).at_least(units).or_else(SOLD_OUT))
            .start(buyer, &[0; BUYER_BYTES])
            .then(buyer.u32(UNITS).at_most(limit_left).or_else(OVER_LIMIT))
            .then(stock.u64(AVAILABLE).decrease(units))
            .then(stock.u64(HELD).increase(units))
            .then(buyer.u32(UNITS).increase(units))
            .then(buyer.u32(BUYS).increase(1u64))
            .put(hold, &it.value())
            .then(hold.expire_in(hold_ms))
            .on_expire(hold, |apply| {
                apply
                    .then(stock.u64(AVAILABLE).increase(units))
                    .then(stock.u64(HELD).decrease(units))
                    .then(buyer.u32(UNITS).decrease(units))
                    .then(buyer.u32(EXPIRIES).increase(1u64));
            });
        apply
    }

    /// Makes an order of a hold.
    pub(crate) fn pay(&self, it: &Purchase) -> Apply {
        let units = u64::from(it.units);
        let mut apply = Apply::new();
        let stock = apply.key(&self.stock_key(it.sku));
        let buyer = apply.key(&self.buyer_key(it));
        let hold = apply.key(&self.hold_key(it));
        let order = apply.key(&self.order_key(it));
        apply
            .then(hold.exists().or_else(HOLD_GONE))
            .then(stock.u64(HELD).decrease(units))
            .then(stock.u64(SOLD).increase(units))
            .then(buyer.u32(PAYS).increase(1u64))
            .then(hold.delete())
            .put(order, &it.value());
        apply
    }

    /// Gives a hold back.
    pub(crate) fn cancel(&self, it: &Purchase) -> Apply {
        let units = u64::from(it.units);
        let mut apply = Apply::new();
        let stock = apply.key(&self.stock_key(it.sku));
        let buyer = apply.key(&self.buyer_key(it));
        let hold = apply.key(&self.hold_key(it));
        apply
            .then(hold.exists().or_else(HOLD_GONE))
            .then(stock.u64(AVAILABLE).increase(units))
            .then(stock.u64(HELD).decrease(units))
            .then(buyer.u32(UNITS).decrease(units))
            .then(buyer.u32(CANCELS).increase(1u64))
            .then(hold.delete());
        apply
    }

    /// Reads a key and its value: the article, and the record. `None` if no sale writes it so.
    pub(crate) fn read(&self, key: &[u8], value: &[u8]) -> Option<(u32, Record)> {
        let rest = std::str::from_utf8(key)
            .ok()?
            .strip_prefix(&self.prefix)?
            .strip_prefix('{')?;
        let (sku, rest) = rest.split_once("}:")?;
        let (kind, number) = rest.split_once(':').unwrap_or((rest, ""));
        let record = match kind {
            "stock" if number.is_empty() => Record::Stock(Stock::read(value)?),
            "buyer" => Record::Buyer(number.parse().ok()?, BuyerRecord::read(value)?),
            "hold" => Record::Hold(number.parse().ok()?, CartRecord::read(value)?),
            "order" => Record::Order(number.parse().ok()?, CartRecord::read(value)?),
            _ => return None,
        };
        Some((sku.parse().ok()?, record))
    }
}

impl Purchase {
    fn value(&self) -> [u8; 8] {
        let mut value = [0; 8];
        value[..4].copy_from_slice(&self.buyer.to_le_bytes());
        value[4..].copy_from_slice(&self.units.to_le_bytes());
        value
    }
}

impl Stock {
    /// The stock before the sale.
    pub(crate) fn of(units: u64) -> Stock {
        Stock {
            initial: units,
            available: units,
            ..Stock::default()
        }
    }

    pub(crate) fn bytes(&self) -> [u8; 32] {
        let numbers = [self.initial, self.available, self.held, self.sold];
        let mut bytes = [0; 32];
        for (at, number) in bytes.chunks_exact_mut(8).zip(numbers) {
            at.copy_from_slice(&number.to_le_bytes());
        }
        bytes
    }

    pub(crate) fn read(value: &[u8]) -> Option<Stock> {
        let value: &[u8; 32] = value.try_into().ok()?;
        let number = |at: usize| u64::from_le_bytes(value[at..at + 8].try_into().expect("eight"));
        Some(Stock {
            initial: number(0),
            available: number(8),
            held: number(16),
            sold: number(24),
        })
    }

    pub(crate) fn plus(self, other: Stock) -> Stock {
        Stock {
            initial: self.initial.wrapping_add(other.initial),
            available: self.available.wrapping_add(other.available),
            held: self.held.wrapping_add(other.held),
            sold: self.sold.wrapping_add(other.sold),
        }
    }
}

/// Numbers of a value of exactly so many.
fn numbers<const COUNT: usize>(value: &[u8]) -> Option<[u32; COUNT]> {
    if value.len() != 4 * COUNT {
        return None;
    }
    let mut chunks = value.chunks_exact(4);
    Some(std::array::from_fn(|_| {
        let chunk = chunks.next().expect("as many as the length says");
        u32::from_le_bytes(chunk.try_into().expect("four"))
    }))
}

impl BuyerRecord {
    fn read(value: &[u8]) -> Option<BuyerRecord> {
        let [units, buys, pays, cancels, expiries] = numbers(value)?;
        Some(BuyerRecord {
            units,
            buys,
            pays,
            cancels,
            expiries,
        })
    }
}

impl CartRecord {
    fn read(value: &[u8]) -> Option<CartRecord> {
        let [buyer, units] = numbers(value)?;
        Some(CartRecord { buyer, units })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const IT: Purchase = Purchase {
        sku: 7,
        buyer: 12,
        cart: 48,
        units: 2,
    };

    #[test]
    fn keys_and_values_are_read_as_they_are_written_and_others_are_not() {
        let shop = Shop::new("drop:".into());
        let value = IT.value();
        let cart = CartRecord {
            buyer: 12,
            units: 2,
        };
        let hold = shop.read(&shop.hold_key(&IT), &value);
        assert_eq!(hold, Some((7, Record::Hold(48, cart))));
        let order = shop.read(&shop.order_key(&IT), &value);
        assert_eq!(order, Some((7, Record::Order(48, cart))));
        let stock = Stock::of(9);
        let read = shop.read(&shop.stock_key(7), &stock.bytes());
        assert_eq!(read, Some((7, Record::Stock(stock))));
        let buyer = shop.read(&shop.buyer_key(&IT), &[0; BUYER_BYTES]);
        assert_eq!(buyer, Some((7, Record::Buyer(12, BuyerRecord::default()))));
        for (key, value) in [
            ("drop:{7}:stock", &[0; 31][..]),
            ("drop:{7}:order:x", &value),
            ("drop:{7}:else:1", &value),
            ("drop:{x}:order:1", &value),
            ("other:{7}:order:1", &value),
        ] {
            assert_eq!(shop.read(key.as_bytes(), value), None, "{key}");
        }
    }

    #[test]
    fn all_keys_of_an_article_are_of_one_slot() {
        let shop = Shop::new("bench:sale:1:".into());
        let slots = [
            shop.stock_key(7),
            shop.buyer_key(&IT),
            shop.hold_key(&IT),
            shop.order_key(&IT),
        ]
        .map(|key| penstock_net::slot::slot_of(&key));
        assert!(slots.iter().all(|slot| *slot == slots[0]), "{slots:?}");
    }
}
