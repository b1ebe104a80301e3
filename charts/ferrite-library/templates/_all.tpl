{{/* Every object of a controller's chart. One that is switched off renders to nothing. */}}
{{- define "ferrite.all" -}}
{{- include "ferrite.refuseUnsafe" . -}}
{{- range $part := list "crds" "serviceAccount" "rbac" "guard" "extendCrd" "deployment" "service" "networkPolicy" "podDisruptionBudget" "serviceMonitor" "prometheusRule" "grafanaDashboard" "test" }}
{{- with include (printf "ferrite.%s" $part) $ | trim }}
---
{{ . }}
{{- end }}
{{- end }}
{{- end -}}

{{/* Combinations that would start two writers, or that cannot work. */}}
{{- define "ferrite.refuseUnsafe" -}}
{{- if not .Values.image.repository -}}
{{- /* A name without a registry is one of Docker Hub's, where a stranger may own it. */ -}}
{{- fail (printf "image.repository is empty: set it to the registry and the name of your image, such as registry.example.org/%s." (include "ferrite.controller" .)) -}}
{{- end -}}
{{- if not .Values.leaderElection.enabled -}}
{{- if gt (int .Values.replicaCount) 1 -}}
{{- fail (printf "replicaCount is %d while leaderElection.enabled is false: all replicas would write at the same time. Switch leader election on, or set replicaCount to 1." (int .Values.replicaCount)) -}}
{{- end -}}
{{- if and .Values.strategy (ne (default "RollingUpdate" .Values.strategy.type) "Recreate") -}}
{{- fail "leaderElection.enabled is false while strategy.type is not Recreate: an update would run the old and the new pod at the same time. Switch leader election on, or leave strategy empty." -}}
{{- end -}}
{{- end -}}
{{- if and .Values.ironic (not (.Values.ironic | default dict).endpoint) -}}
{{- fail "ironic.endpoint is empty: set it to the URL of the Ironic API, such as https://ironic.example.org:6385/." -}}
{{- end -}}
{{- if and .Values.serviceMonitor.enabled (not .Values.metrics.enabled) -}}
{{- fail "serviceMonitor.enabled needs metrics.enabled: without the Service there is nothing to scrape." -}}
{{- end -}}
{{- if and .Values.prometheusRule.enabled (not .Values.metrics.enabled) -}}
{{- fail "prometheusRule.enabled needs metrics.enabled: the alerts look for the job that is named after the Service." -}}
{{- end -}}
{{- if and (not .Values.serviceAccount.create) .Values.rbac.create (not .Values.serviceAccount.name) -}}
{{- fail "serviceAccount.create is false without serviceAccount.name: the namespace's default account would get the controller's permissions. Name the account to use, or set rbac.create to false." -}}
{{- end -}}
{{- end -}}
