//! Many objects at once.

use anyhow::{Context, ensure};
use k8s_openapi::ByteString;
use serde_json::{Value, json};

use super::{ControlPlane, etcd};

/// etcd takes 128 changes at a time by itself, and requests of a megabyte and a half.
const AT_ONCE: usize = 32;

impl ControlPlane {
    /// Puts objects of a custom kind (`<group>/<plural>`) into etcd, each made by `another` from one that the API server has
    /// stored as `<namespace>/<name>`: to make a hundred thousand of them takes the API server many minutes. It learns of them as
    /// of the writes of another API server on the same etcd, some moments later. Nobody checks them: what is no valid object is
    /// listed all the same.
    ///
    /// # Errors
    /// When that object is not there, or etcd refuses.
    pub async fn multiply(
        &self,
        kind: &str,
        like: &str,
        numbers: std::ops::Range<u32>,
        another: impl Fn(&Value, u32) -> Value,
    ) -> anyhow::Result<()> {
        let folder = format!("{}/{kind}", self.prefix);
        let asked = json!({ "key": bytes(&format!("{folder}/{like}")) });
        let found = ask("range", &asked).await?;
        let stored = &found["kvs"][0]["value"];
        let stored: ByteString = serde_json::from_value(stored.clone())
            .with_context(|| format!("{kind} {like} is not stored"))?;
        let stored: Value = serde_json::from_slice(&stored.0)
            .with_context(|| format!("{kind} {like} is not stored as JSON"))?;
        let numbers: Vec<u32> = numbers.collect();
        for some in numbers.chunks(AT_ONCE) {
            let puts: Vec<Value> = some
                .iter()
                .map(|number| another(&stored, *number))
                .map(|it| {
                    let word = |field: &str| it["metadata"][field].as_str().unwrap_or_default();
                    let key = format!("{folder}/{}/{}", word("namespace"), word("name"));
                    json!({ "requestPut": { "key": bytes(&key), "value": bytes(&it.to_string()) } })
                })
                .collect();
            ask("txn", &json!({ "success": puts })).await?;
        }
        Ok(())
    }
}

fn bytes(text: &str) -> ByteString {
    ByteString(text.as_bytes().to_vec())
}

/// etcd speaks JSON, too, with keys and values in base64.
async fn ask(what: &str, body: &Value) -> anyhow::Result<Value> {
    let url = format!("{}/v3/kv/{what}", etcd().await?.url);
    let answer = reqwest::Client::new().post(url).json(body).send().await?;
    let (status, text) = (answer.status(), answer.text().await?);
    ensure!(status.is_success(), "etcd answers {status}: {text}");
    Ok(serde_json::from_str(&text)?)
}
