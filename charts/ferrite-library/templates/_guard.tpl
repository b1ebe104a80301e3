{{/*
The guard: what the API server refuses CAPM3's account while this release is installed, because this controller decides
about it. What that is, is data: files/guard.yaml of the chart.
  setting  the switch among `settings` without which there is no guard; optional
  rules    one policy each: {name, apiGroup, resources, operations}, `filtered` where the watch filter limits it,
           `allowed`, which writes are none of ours (CEL), with `variables` for it, and a `message` that says who decides
*/}}
{{- define "ferrite.guard" -}}
{{- $account := (.Values.capm3 | default dict).account }}
{{- $guard := .Files.Get "files/guard.yaml" | fromYaml }}
{{- if and $account $guard.rules (or (not $guard.setting) (get .Values.settings $guard.setting)) }}
{{- range $guard.rules }}
{{- $name := printf "%s.%s" (include "ferrite.clusterName" $ | replace ":" ".") .name }}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata:
  name: {{ $name }}
  labels:
    {{- include "ferrite.labels" $ | nindent 4 }}
spec:
  failurePolicy: Fail
  matchConstraints:
    resourceRules:
      - apiGroups: [{{ .apiGroup }}]
        apiVersions: ["*"]
        resources:
          {{- toYaml .resources | nindent 10 }}
        operations:
          {{- toYaml .operations | nindent 10 }}
  matchConditions:
    - name: capm3
      expression: {{ printf "request.userInfo.username == 'system:serviceaccount:%s'" $account | quote }}
    {{- if and .filtered $.Values.watchFilter }}
    - name: watch-filter
      expression: |-
        (oldObject == null ? object : oldObject)
        .metadata.?labels[?'cluster.x-k8s.io/watch-filter'].orValue('') == {{ $.Values.watchFilter | toJson }}
    {{- end }}
  {{- with .variables }}
  variables:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  validations:
    - expression: |-
        {{- .allowed | trim | nindent 8 }}
      reason: Forbidden
      message: {{ printf "%s (release %s in %s, docs/controllers/%s.md)" .message $.Release.Name $.Release.Namespace (include "ferrite.controller" $) | quote }}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata:
  name: {{ $name }}
  labels:
    {{- include "ferrite.labels" $ | nindent 4 }}
spec:
  policyName: {{ $name }}
  validationActions: [Deny]
  {{- with $.Values.watchNamespaces }}
  matchResources:
    namespaceSelector:
      matchExpressions:
        - key: kubernetes.io/metadata.name
          operator: In
          values:
            {{- toYaml . | nindent 12 }}
  {{- end }}
{{- end }}
{{- end }}
{{- end -}}
