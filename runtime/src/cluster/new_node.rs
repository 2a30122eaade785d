//! A node as a person names it for a cluster.

use std::net::SocketAddr;

use super::file::is_host_and_port;

/// A node of a cluster that is made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewNode {
    /// 1 to 255.
    pub number: u8,
    /// Where it takes links.
    pub links: SocketAddr,
    /// Where clients find it.
    pub clients: String,
    /// Where clients of Redis find it, HOST:PORT.
    pub resp: Option<String>,
}

impl NewNode {
    /// Reads `NUMBER,LINKS,CLIENTS[,RESP]`.
    ///
    /// # Errors
    /// What is wanted.
    pub fn parse(text: &str) -> Result<NewNode, String> {
        let wanted = "NUMBER,LINKS,CLIENTS or NUMBER,LINKS,CLIENTS,RESP is wanted, for example \
                      2,10.0.0.2:7414,10.0.0.2:7411,10.0.0.2:7413";
        let words: Vec<&str> = text.split(',').collect();
        let (number, links, clients, resp) = match *words.as_slice() {
            [number, links, clients] => (number, links, clients, None),
            [number, links, clients, resp] => (number, links, clients, Some(resp)),
            _ => return Err(wanted.into()),
        };
        if clients.is_empty() {
            return Err(wanted.into());
        }
        if let Some(resp) = resp.filter(|resp| !is_host_and_port(resp)) {
            return Err(format!("resp = {resp:?} is not HOST:PORT; {wanted}"));
        }
        let number = number.parse().ok().filter(|number| *number > 0);
        Ok(NewNode {
            number: number.ok_or_else(|| format!("the number is 1 to 255; {wanted}"))?,
            links: links
                .parse()
                .map_err(|_| format!("links = {links:?} is not IP:PORT; {wanted}"))?,
            clients: clients.into(),
            resp: resp.map(str::to_string),
        })
    }
}
