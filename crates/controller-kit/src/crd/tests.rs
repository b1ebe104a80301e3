use super::*;

fn crd() -> Value {
    json!({ "spec": { "versions": [
        { "name": "v1alpha1", "served": true },
        { "name": "v1", "served": true, "schema": { "openAPIV3Schema": { "type": "object", "properties": {
            "spec": { "type": "object", "properties": {
                "inventory": { "type": "array" },
                "parts": { "type": "array", "items": { "type": "object" } },
                "free": { "type": "object", "x-kubernetes-preserve-unknown-fields": true },
            } },
            "status": { "type": "object", "properties": { "phase": { "type": "string" } } },
        } } } },
        { "name": "v0", "served": false },
    ] } })
}

fn needed(path: &'static [&'static str], property: &'static str) -> Needed {
    let schema = json!({ "type": "string", "description": "ours" });
    let field = Some(Field { path, property, schema, replace: false, optional: false });
    Needed { crd: "things.example.com", versions: &["v1"], field }
}

/// What the API server makes of the operations; every `test` among them must hold.
fn apply(crd: &Value, operations: &[Value]) -> Value {
    let mut crd = crd.clone();
    for operation in operations {
        let path = operation["path"].as_str().unwrap();
        if operation["op"] == "test" {
            assert_eq!(crd.pointer(path), Some(&operation["value"]));
            continue;
        }
        let (parent, name) = path.rsplit_once('/').unwrap();
        let parent = crd.pointer_mut(parent).unwrap().as_object_mut().unwrap();
        parent.insert(name.replace("~1", "/").replace("~0", "~"), operation["value"].clone());
    }
    crd
}

/// What has to be there and is not.
fn lacking(crd: Option<&Value>, needed: &Needed, controller: &str) -> Option<String> {
    judge(crd, needed, controller).err()
}

/// What is not there and need not be.
fn spared(crd: Option<&Value>, needed: &Needed, controller: &str) -> Option<String> {
    judge(crd, needed, controller).ok().flatten()
}

fn operations(crd: &Value, needed: &Needed) -> Vec<Value> {
    additions(crd, std::iter::once(needed)).unwrap().0
}

#[test]
fn a_missing_field_is_added_once_and_nothing_else_changes() {
    let wanted = needed(&["status"], "seen/at");
    let mut extended = apply(&crd(), &operations(&crd(), &wanted));
    assert_eq!(look(&extended, &wanted), Found::Present);
    assert_eq!(operations(&extended, &wanted), [Value::Null; 0]);
    let fields = "/spec/versions/1/schema/openAPIV3Schema/properties/status/properties";
    extended.pointer_mut(fields).unwrap().as_object_mut().unwrap().remove("seen/at");
    assert_eq!(extended, crd());
}

#[test]
fn an_object_without_properties_gets_its_first() {
    let wanted = needed(&["spec", "parts", "[]"], "name");
    assert_eq!(look(&apply(&crd(), &operations(&crd(), &wanted)), &wanted), Found::Present);
}

#[test]
fn what_keeps_unknown_fields_lacks_none() {
    assert_eq!(look(&crd(), &needed(&["spec", "free"], "any")), Found::Present);
    assert_eq!(look(&crd(), &needed(&["spec", "free", "deep"], "any")), Found::Present);
}

#[test]
fn another_schema_is_replaced_only_where_that_is_asked_for() {
    let mut wanted = needed(&["spec"], "inventory");
    assert_eq!(look(&crd(), &wanted), Found::Present);
    let field = wanted.field.as_mut().unwrap();
    field.replace = true;
    field.schema = json!({ "x-kubernetes-preserve-unknown-fields": true });
    let extended = apply(&crd(), &operations(&crd(), &wanted));
    let inventory = "/spec/versions/1/schema/openAPIV3Schema/properties/spec/properties/inventory";
    assert_eq!(
        extended.pointer(inventory),
        Some(&json!({ "x-kubernetes-preserve-unknown-fields": true }))
    );
    assert_eq!(operations(&extended, &wanted), [Value::Null; 0]);
}

#[test]
fn each_lack_says_what_to_do() {
    let wanted = needed(&["status"], "seenAt");
    let say = |crd: Option<&Value>, needed: &Needed| lacking(crd, needed, "it").unwrap_or_default();
    assert!(say(None, &wanted).contains("things.example.com is not installed"));
    assert!(
        say(Some(&crd()), &wanted).contains("status.seenAt")
            && say(Some(&crd()), &wanted).contains("it extend-crd")
    );
    assert!(say(Some(&crd()), &needed(&["gone"], "a")).contains("no field gone"));
    let versions: &[&str] = &["v0", "v2"];
    let told = say(Some(&crd()), &Needed { versions, ..wanted.clone() });
    assert!(told.contains("does not serve version v0 or v2"), "{told}");
    assert_eq!(say(Some(&crd()), &Needed { field: None, ..wanted }), "");
}

#[test]
fn a_field_that_is_optional_is_missed_without_being_needed() {
    let mut wanted = needed(&["status"], "seenAt");
    wanted.field.as_mut().unwrap().optional = true;
    assert_eq!(lacking(Some(&crd()), &wanted, "it"), None);
    let told = spared(Some(&crd()), &wanted, "it").unwrap();
    assert!(told.contains("status.seenAt") && told.contains("it works without it"), "{told}");
    assert!(lacking(None, &wanted, "it").is_some() && spared(None, &wanted, "it").is_none());
    let there = needed(&["status"], "ready");
    assert_eq!(spared(Some(&crd()), &there, "it"), None, "who needs it is told otherwise");
}

#[test]
fn the_first_version_that_is_served_is_the_one_that_needs_the_field() {
    let wanted = needed(&["status"], "seenAt");
    let versions: &[&str] = &["v2", "v1"];
    let told = lacking(Some(&crd()), &Needed { versions, ..wanted }, "it").unwrap_or_default();
    assert!(told.contains("version v1:"), "{told}");
}

#[test]
fn a_patch_for_git_makes_of_either_crd_the_extended_one() {
    let wanted = [needed(&["status"], "seen/at"), needed(&["spec", "parts", "[]"], "name")];
    let mut extended = crd();
    for needed in &wanted {
        extended = apply(&extended, &operations(&extended, needed));
    }
    let patch = gitops::patch_of(&crd(), wanted.iter()).unwrap();
    assert_eq!(apply(&crd(), &patch), extended);
    let patch = gitops::patch_of(&extended, wanted[..1].iter()).unwrap();
    assert_eq!(apply(&crd(), &patch), apply(&crd(), &operations(&crd(), &wanted[0])));
    let free = needed(&["spec", "free", "deep"], "any");
    assert_eq!(gitops::patch_of(&crd(), std::iter::once(&free)), Ok(vec![]));
    let nowhere = needed(&["gone"], "a");
    assert!(
        gitops::patch_of(&crd(), std::iter::once(&nowhere)).unwrap_err().contains("no field gone")
    );
}
