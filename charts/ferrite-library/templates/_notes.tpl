{{- define "ferrite.notes" -}}
{{- $namespace := include "ferrite.namespace" . -}}
{{- $name := include "ferrite.fullname" . -}}
{{ include "ferrite.controller" . }} {{ .Chart.AppVersion }} looks after {{ if .Values.watchNamespaces }}the namespaces {{ join ", " .Values.watchNamespaces }}{{ else }}all namespaces{{ end }}.

Is it up, and has it all it needs?
  kubectl -n {{ $namespace }} rollout status deployment/{{ $name }}
  helm test {{ .Release.Name }} -n {{ .Release.Namespace }} --logs

What is it doing?
  kubectl -n {{ $namespace }} logs deployment/{{ $name }} -f
{{- if .Values.leaderElection.enabled }}
  kubectl -n {{ $namespace }} get lease {{ include "ferrite.leaseName" . }}
{{- end }}
{{- if .Values.metrics.enabled }}
  kubectl -n {{ $namespace }} port-forward service/{{ $name }} {{ int .Values.metrics.port }} &
  curl http://127.0.0.1:{{ int .Values.metrics.port }}/readyz?verbose
{{- end }}
{{- if include "ferrite.guard" . | trim }}

CAPM3 goes on beside it. What is decided here, its account {{ .Values.capm3.account }} may not write:
  kubectl get validatingadmissionpolicies -l app.kubernetes.io/instance={{ .Release.Name }}
{{- end }}
{{- if not .Values.rbac.create }}

rbac.create is false: the account {{ include "ferrite.serviceAccountName" . }} needs the rules of files/rules.json from you.
{{- end }}
{{- end -}}
