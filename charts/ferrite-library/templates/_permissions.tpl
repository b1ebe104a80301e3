{{/*
What the controller may do is data: files/rules.json of its chart. The tests and the controller's `check` read the same
file. A rule is a PolicyRule with a `why`. One with a `when` is there only where that block of the values is `enabled`.
  namespaced  rules on objects in the watched namespaces
  cluster     rules on cluster-wide objects
  extendCrd   names of CRDs that get more fields, by a hook with an account of its own
  aggregated  ClusterRoles of others that get more rules: {name, labels, rules}
*/}}
{{- define "ferrite.rules" -}}
{{- $file := .Files.Get "files/rules.json" -}}
{{- if not $file -}}
{{- fail "files/rules.json is missing in the chart." -}}
{{- end -}}
{{- $file -}}
{{- end -}}

{{- define "ferrite.policyRules" -}}
{{- range . }}
- {{ omit . "why" | toYaml | nindent 2 | trim }}
{{- end }}
{{- end -}}

{{/* Everybody who decides something says so in an event. */}}
{{- define "ferrite.eventRules" -}}
- apiGroups: [events.k8s.io]
  resources: [events]
  verbs: [create, patch]
{{- end -}}

{{- define "ferrite.serviceAccount" -}}
{{- if .Values.serviceAccount.create }}
apiVersion: v1
kind: ServiceAccount
metadata:
  name: {{ include "ferrite.serviceAccountName" . }}
  namespace: {{ include "ferrite.namespace" . }}
  labels:
    {{- include "ferrite.labels" . | nindent 4 }}
  {{- with .Values.serviceAccount.annotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
# Pods that use the account without being the controller get no token.
automountServiceAccountToken: false
{{- end }}
{{- end -}}

{{/* A role and its binding: dict context, kind (Role or ClusterRole), name, namespace (Role only), rules (text). */}}
{{- define "ferrite.roleAndBinding" -}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ .kind }}
metadata:
  name: {{ .name }}
  {{- with .namespace }}
  namespace: {{ . }}
  {{- end }}
  labels:
    {{- include "ferrite.labels" .context | nindent 4 }}
rules:
  {{- .rules | trim | nindent 2 }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ .kind }}Binding
metadata:
  name: {{ .name }}
  {{- with .namespace }}
  namespace: {{ . }}
  {{- end }}
  labels:
    {{- include "ferrite.labels" .context | nindent 4 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: {{ .kind }}
  name: {{ .name }}
subjects:
  - kind: ServiceAccount
    name: {{ include "ferrite.serviceAccountName" .context }}
    namespace: {{ include "ferrite.namespace" .context }}
{{- end -}}

{{- define "ferrite.rbac" -}}
{{- if .Values.rbac.create }}
{{- $rules := include "ferrite.rules" . | fromJson }}
{{- $fullname := include "ferrite.fullname" . }}
{{- $held := list }}
{{- range $rules.namespaced }}
{{- if or (not .when) (get $.Values (.when | default "") | default dict).enabled }}
{{- $held = append $held (omit . "when") }}
{{- end }}
{{- end }}
{{- $namespaced := printf "%s\n%s" (include "ferrite.policyRules" $held) (include "ferrite.eventRules" .) }}
{{- $cluster := include "ferrite.policyRules" $rules.cluster }}
{{- if .Values.watchNamespaces }}
{{- range .Values.watchNamespaces }}
{{ include "ferrite.roleAndBinding" (dict "context" $ "kind" "Role" "name" $fullname "namespace" . "rules" $namespaced) }}
{{- end }}
{{- else }}
{{- $cluster = printf "%s\n%s" $namespaced $cluster }}
{{- end }}
{{- if $cluster | trim }}
{{ include "ferrite.roleAndBinding" (dict "context" $ "kind" "ClusterRole" "name" (include "ferrite.clusterName" .) "rules" $cluster) }}
{{- end }}
{{- if .Values.leaderElection.enabled }}
{{ include "ferrite.roleAndBinding" (dict "context" $ "kind" "Role" "name" (printf "%s-lease" $fullname) "namespace" (include "ferrite.namespace" .) "rules" (include "ferrite.leaseRules" .)) }}
{{- end }}
{{- range $rules.aggregated }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  name: {{ include "ferrite.clusterName" $ }}:{{ .name }}
  labels:
    {{- include "ferrite.labels" $ | nindent 4 }}
    {{- toYaml .labels | nindent 4 }}
rules:
  {{- include "ferrite.policyRules" .rules | trim | nindent 2 }}
{{- end }}
{{- if .Values.rbac.aggregateClusterRoles }}
{{ include "ferrite.userRole" (dict "context" . "name" "view" "verbs" (list "get" "list" "watch")) }}
{{ include "ferrite.userRole" (dict "context" . "name" "edit" "verbs" (list "create" "update" "patch" "delete" "deletecollection")) }}
{{- end }}
{{- end }}
{{- end -}}

{{/*
What the cluster's role of this name may do with the controller's own kinds: dict context, name, verbs. The cluster adds
what view may to edit, and what edit may to admin.
*/}}
{{- define "ferrite.userRole" -}}
{{- $verbs := .verbs }}
{{- $rules := list }}
{{- range $path, $content := .context.Files.Glob "files/crds/*" }}
{{- $spec := ($content | toString | fromYaml).spec }}
{{- $rules = append $rules (dict "apiGroups" (list $spec.group) "resources" (list $spec.names.plural) "verbs" $verbs) }}
{{- end }}
{{- with $rules }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  name: {{ include "ferrite.clusterName" $.context }}:{{ $.name }}
  labels:
    {{- include "ferrite.labels" $.context | nindent 4 }}
    rbac.authorization.k8s.io/aggregate-to-{{ $.name }}: "true"
rules:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* A name cannot be asked for on create, so that verb stands alone. */}}
{{- define "ferrite.leaseRules" -}}
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  verbs: [create]
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  resourceNames: [{{ include "ferrite.leaseName" . }}]
  verbs: [get, list, watch, patch]
- apiGroups: [events.k8s.io]
  resources: [events]
  verbs: [create, patch]
{{- end -}}

{{- define "ferrite.crds" -}}
{{- if .Values.crds.enabled }}
{{- range $path, $content := .Files.Glob "files/crds/*" }}
{{- $crd := $content | toString | fromYaml }}
{{- if $.Values.crds.keep }}
{{- $_ := set $crd.metadata "annotations" (merge (dict "helm.sh/resource-policy" "keep") (default dict $crd.metadata.annotations)) }}
{{- end }}
{{- $_ := set $crd.metadata "labels" (merge (include "ferrite.labels" $ | fromYaml) (default dict $crd.metadata.labels)) }}
---
{{ toYaml $crd }}
{{- end }}
{{- end }}
{{- end -}}
