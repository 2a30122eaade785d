//! Sorted tables of the keys of a sealed segment, for scans of cold keys. The layer uses formats
//! and the order of the index, and knows no store.

pub mod key_table;
