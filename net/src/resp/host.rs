//! What a connection asks of the server around it.

/// A connection, as CLIENT LIST tells it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Client {
    /// Its number; never given twice in the life of a process.
    pub id: u64,
    /// The address of its peer, and the one that it came to.
    pub address: String,
    /// The address of the server's end.
    pub local_address: String,
    /// What CLIENT SETNAME told.
    pub name: String,
    /// What CLIENT SETINFO told.
    pub library: String,
    /// What CLIENT SETINFO told.
    pub library_version: String,
    /// Unix seconds when it came.
    pub since_s: u64,
    /// 2 or 3.
    pub protocol: u8,
}

/// What INFO, CONFIG GET, CLUSTER and HELLO tell of the server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// The version of the server.
    pub version: &'static str,
    /// The port of RESP.
    pub port: u16,
    /// The address of RESP without the port.
    pub ip: String,
    /// The identity of the node.
    pub node: [u8; 16],
    /// The process.
    pub pid: u32,
    /// Seconds since the start.
    pub uptime_s: u64,
    /// Connections of all ports.
    pub clients: u64,
    /// Connections of all ports, at most.
    pub clients_max: u64,
    /// Resident bytes.
    pub resident_bytes: u64,
    /// Resident bytes, at most.
    pub memory_max: u64,
    /// Keys of all shards.
    pub keys: u64,
    /// Operations that were answered.
    pub operations: u64,
    /// How many connections were opened.
    pub connections: u64,
    /// The least level of a write.
    pub durability: &'static str,
    /// Seconds of silence after which a connection ends; 0 for never.
    pub idle_s: u64,
    /// Shards.
    pub shards: u16,
    /// Whether the node is one of a cluster.
    pub is_clustered: bool,
}

/// The server around a connection.
pub trait Host {
    /// Unix microseconds.
    fn unix_us(&self) -> u64;

    /// What holds now.
    fn facts(&self) -> Facts;

    /// All connections of RESP, by number.
    fn clients(&self) -> Vec<Client>;

    /// A connection has another name, library or protocol.
    fn client_changed(&self, client: &Client);

    /// The order of cursors of the shards: 17 bits, odd.
    fn scan_order(&self) -> u64;
}
