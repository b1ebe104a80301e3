{{/* The controller's name: of the chart and the binary. */}}
{{- define "ferrite.controller" -}}
{{- .Chart.Name -}}
{{- end -}}

{{- define "ferrite.name" -}}
{{- default (include "ferrite.controller" .) .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{/* Name of all objects: the release, with the controller unless the release is called after it. */}}
{{- define "ferrite.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 63 | trimSuffix "-" -}}
{{- else -}}
{{- $name := include "ferrite.name" . -}}
{{- if contains $name .Release.Name -}}
{{- .Release.Name | trunc 63 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 63 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "ferrite.namespace" -}}
{{- default .Release.Namespace .Values.namespaceOverride -}}
{{- end -}}

{{/* Name of cluster-wide objects: two releases in two namespaces must not share them. */}}
{{- define "ferrite.clusterName" -}}
{{- printf "%s:%s" (include "ferrite.namespace" .) (include "ferrite.fullname" .) -}}
{{- end -}}

{{- define "ferrite.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "ferrite.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{- define "ferrite.leaseName" -}}
{{- default (printf "ferrite-%s" (include "ferrite.controller" .)) .Values.leaderElection.leaseName -}}
{{- end -}}

{{- define "ferrite.image" -}}
{{- if .Values.image.digest -}}
{{- printf "%s@%s" .Values.image.repository .Values.image.digest -}}
{{- else -}}
{{- printf "%s:%s" .Values.image.repository (default .Chart.AppVersion .Values.image.tag) -}}
{{- end -}}
{{- end -}}

{{/* A selector cannot be changed later, so it holds only what never changes. */}}
{{- define "ferrite.selectorLabels" -}}
app.kubernetes.io/name: {{ include "ferrite.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "ferrite.labels" -}}
{{ include "ferrite.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/part-of: ferrite
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{/* metadata of a namespaced object: name, namespace, labels. */}}
{{- define "ferrite.metadata" -}}
name: {{ include "ferrite.fullname" . }}
namespace: {{ include "ferrite.namespace" . }}
labels:
  {{- include "ferrite.labels" . | nindent 2 }}
{{- end -}}
