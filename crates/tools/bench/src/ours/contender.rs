//! A client of ours that makes transactions.

use anyhow::Result;
use sprat_client::{Client, Error, Options, Table};

use super::TABLE;
use crate::scenarios::{Contender, number_of, value_of};

/// A client that makes transactions.
pub(crate) struct SpratContender {
    client: Client,
    table: Table,
}

impl SpratContender {
    /// Connects a client, and makes the table if it does not exist.
    pub(crate) fn connect(options: &Options) -> Result<Self> {
        let mut client = Client::connect(options)?;
        let table = client.create_table(TABLE)?;
        Ok(Self { client, table })
    }
}

impl Contender for SpratContender {
    fn add_to(&mut self, [first, second]: [&[u8]; 2]) -> Result<u64> {
        let (table, mut attempts) = (self.table, 0);
        self.client.transact(|transaction| {
            attempts += 1;
            let values = transaction.get_many(&[(table, first), (table, second)])?;
            for (key, value) in [first, second].into_iter().zip(values) {
                let number = value.map_or(Ok(0), |value| number_of(&value)).map_err(no_number)?;
                transaction.put(table, key, value_of(number + 1));
            }
            Ok::<_, Error>(())
        })?;
        Ok(attempts)
    }

    fn number(&mut self, key: &[u8]) -> Result<u64> {
        let object = self.client.get(self.table, key)?;
        object.map_or(Ok(0), |object| number_of(&object.value))
    }
}

fn no_number(error: anyhow::Error) -> Error {
    Error::BadTransaction(error.to_string())
}
