{{- define "ferrite.notes" -}}
{{- $namespace := include "ferrite.namespace" . -}}
{{- $name := include "ferrite.fullname" . -}}
{{ include "ferrite.controller" . }} {{ .Chart.AppVersion }} works in {{ if .Values.watchNamespaces }}the namespaces {{ join ", " .Values.watchNamespaces }}{{ else }}all namespaces{{ end }}.

Is it up, and does it have all that it needs?
  kubectl -n {{ $namespace }} rollout status deployment/{{ $name }}
  helm test {{ .Release.Name }} -n {{ .Release.Namespace }} --logs

What is it doing?
  kubectl -n {{ $namespace }} logs -l app.kubernetes.io/name={{ include "ferrite.name" . }},app.kubernetes.io/instance={{ .Release.Name }} --prefix --tail=100 -f
{{- if .Values.leaderElection.enabled }}
  kubectl -n {{ $namespace }} get lease {{ include "ferrite.leaseName" . }}
{{- end }}
  kubectl -n {{ $namespace }} port-forward deployment/{{ $name }} {{ int .Values.metrics.port }} &
  curl -s --retry 5 --retry-connrefused --retry-delay 1 'http://127.0.0.1:{{ int .Values.metrics.port }}/readyz?verbose'
{{- if include "ferrite.guard" . | trim }}

CAPM3 goes on beside it. What is decided here, its account {{ .Values.capm3.account }} must not write:
  kubectl get validatingadmissionpolicies -l app.kubernetes.io/instance={{ .Release.Name }}
{{- end }}
{{- with include "ferrite.next" . | trim }}

To do now:
{{ . | indent 2 }}
{{- end }}
{{- if not .Values.rbac.create }}

rbac.create is false: grant the account {{ include "ferrite.serviceAccountName" . }} these rights. Without them it is ready and does nothing:
  - the rules of files/rules.json: `namespaced` where it works, `cluster` in the whole cluster
  - create and patch on events.events.k8s.io where it works, and in {{ $namespace }}
{{- if .Values.leaderElection.enabled }}
  - in {{ $namespace }} create on leases.coordination.k8s.io, and get, list, watch and patch on the lease {{ include "ferrite.leaseName" . }}
{{- end }}
What is missing: helm test {{ .Release.Name }} -n {{ .Release.Namespace }} --logs
{{- end }}
{{- end -}}

{{/* Without this step a release does nothing, or not alone. Lines without indentation. */}}
{{- define "ferrite.next" -}}
{{- $settings := .Values.settings | default dict }}
{{- $controller := include "ferrite.controller" . }}
{{- $change := printf "helm upgrade %s <chart> -n %s --reset-then-reuse-values --set" .Release.Name .Release.Namespace }}
{{- if eq $controller "bmo-reboot" }}
{{- if not $settings.takeover }}
Beside an operator that manages power, before any host is handed over: {{ $change }} settings.takeover=true
{{- end }}
{{- if eq ($settings.hostSelector | default "") "ferrite.metal3.io/power=managed" }}
Hand hosts over: kubectl -n <namespace> label baremetalhost <host> ferrite.metal3.io/power=managed
{{- end }}
{{- else if eq $controller "clusterpool-inventory" }}
Hive's own controller of pools must not run beside it. If it does:
kubectl get hiveconfig hive -o json | jq '.spec.disabledControllers = ((.spec.disabledControllers // []) + ["clusterpool"] | unique)' | kubectl replace -f -
{{- else if eq $controller "host-discovery" }}
Say which machines become hosts. Until there is a BareMetalHostDiscovery, none does: docs/controllers/host-discovery.md has an example.
{{- else if include "ferrite.guard" . | trim }}
Check that the guard refuses the account: docs/controllers/{{ $controller }}.md has the command. For another account:
{{ $change }} capm3.account=<namespace>:<name>
{{- end }}
{{- end -}}
