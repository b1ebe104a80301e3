{{- define "ferrite.service" -}}
{{- if .Values.metrics.enabled }}
apiVersion: v1
kind: Service
metadata:
  {{- include "ferrite.metadata" . | nindent 2 }}
spec:
  type: ClusterIP
  selector:
    {{- include "ferrite.selectorLabels" . | nindent 4 }}
  ports:
    - name: http
      port: {{ int .Values.metrics.port }}
      targetPort: http
      protocol: TCP
{{- end }}
{{- end -}}

{{/* Egress stays open: neither the API server nor Ironic can be named by a pod selector. */}}
{{- define "ferrite.networkPolicy" -}}
{{- if .Values.networkPolicy.enabled }}
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata:
  {{- include "ferrite.metadata" . | nindent 2 }}
spec:
  podSelector:
    matchLabels:
      {{- include "ferrite.selectorLabels" . | nindent 6 }}
  policyTypes: [Ingress]
  ingress:
    - ports:
        - port: http
          protocol: TCP
      {{- with .Values.networkPolicy.from }}
      from:
        {{- toYaml . | nindent 8 }}
      {{- end }}
{{- end }}
{{- end -}}
