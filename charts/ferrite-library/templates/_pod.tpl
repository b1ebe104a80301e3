{{/* The controller's flags, one per line. */}}
{{- define "ferrite.args" -}}
{{- if .Values.leaderElection.enabled }}
- --lease-name={{ include "ferrite.leaseName" . }}
- --lease-duration={{ .Values.leaderElection.leaseDuration }}
- --renew-deadline={{ .Values.leaderElection.renewDeadline }}
- --retry-period={{ .Values.leaderElection.retryPeriod }}
{{- end }}
- --concurrency={{ int .Values.concurrency }}
{{- range $key, $value := .Values.settings }}
{{- if kindIs "slice" $value }}
- {{ printf "--%s=%s" (kebabcase $key) (join "," $value) | quote }}
{{- else if kindIs "float64" $value }}
- {{ printf "--%s=%s" (kebabcase $key) (toJson $value) | quote }}
{{- else if not (kindIs "invalid" $value) }}
- {{ printf "--%s=%v" (kebabcase $key) $value | quote }}
{{- end }}
{{- end }}
{{- if (.Values.scaleToHosts | default dict).enabled }}
- --scale-to-hosts=true
{{- end }}
{{- range .Values.extraArgs }}
- {{ . | quote }}
{{- end }}
{{- end -}}

{{- define "ferrite.env" -}}
- name: FERRITE_LISTEN
  value: {{ printf "%s:%d" .Values.metrics.address (int .Values.metrics.port) | quote }}
- name: FERRITE_LEADER_ELECT
  value: {{ .Values.leaderElection.enabled | quote }}
{{- with .Values.watchNamespaces }}
- name: FERRITE_NAMESPACES
  value: {{ join "," . | quote }}
{{- end }}
{{- with .Values.watchFilter }}
- name: FERRITE_WATCH_FILTER
  value: {{ . | quote }}
{{- end }}
- name: FERRITE_LOG_FORMAT
  value: {{ .Values.log.format }}
- name: RUST_LOG
  value: {{ .Values.log.level | quote }}
{{- with .Values.ironic }}
- name: IRONIC_ENDPOINT
  value: {{ .endpoint | quote }}
- name: IRONIC_CLIENT_TIMEOUT
  value: {{ .timeout | quote }}
{{- with .conductorGroup }}
- name: IRONIC_CONDUCTOR_GROUP
  value: {{ . | quote }}
{{- end }}
{{- if .insecure }}
- name: IRONIC_INSECURE
  value: "true"
{{- end }}
{{- end }}
{{- with .Values.extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* The secrets for Ironic, by the folder in which the baremetal-operator looks for them, too. */}}
{{- define "ferrite.ironicSecrets" -}}
{{- with .Values.ironic -}}
{{- with .credentialsSecret }}
ironic-credentials: {secret: {{ . }}, path: /opt/metal3/auth/ironic}
{{- end }}
{{- with .caSecret }}
ironic-ca: {secret: {{ . }}, path: /opt/metal3/certs/ca}
{{- end }}
{{- with .clientCertSecret }}
ironic-client-cert: {secret: {{ . }}, path: /opt/metal3/certs/client}
{{- end }}
{{- end -}}
{{- end -}}

{{- define "ferrite.volumes" -}}
{{- range $name, $it := include "ferrite.ironicSecrets" . | fromYaml }}
- name: {{ $name }}
  secret:
    secretName: {{ $it.secret }}
    # 0444, for everybody in the pod: which user that is, the cluster decides.
    defaultMode: 292
{{- end }}
{{- with .Values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "ferrite.volumeMounts" -}}
{{- range $name, $it := include "ferrite.ironicSecrets" . | fromYaml }}
- name: {{ $name }}
  mountPath: {{ $it.path }}
  readOnly: true
{{- end }}
{{- with .Values.extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/*
What the pods of the controller and of the test have in common; those of the hook too, but for the volumes: it asks the API
server alone, and a secret that is not there yet is no reason to wait.
*/}}
{{- define "ferrite.podBasics" -}}
enableServiceLinks: false
{{- with .Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
securityContext:
  {{- toYaml .Values.podSecurityContext | nindent 2 }}
{{- range $key := list "nodeSelector" "tolerations" "affinity" "priorityClassName" }}
{{- with index $.Values $key }}
{{ $key }}:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
{{- end -}}

{{- define "ferrite.podVolumes" -}}
{{- with include "ferrite.volumes" . | trim }}
volumes:
  {{- . | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "ferrite.containerBasics" -}}
image: {{ include "ferrite.image" . }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
securityContext:
  {{- toYaml .Values.securityContext | nindent 2 }}
resources:
  {{- toYaml .Values.resources | nindent 2 }}
env:
  {{- include "ferrite.env" . | nindent 2 }}
{{- end -}}

{{- define "ferrite.containerVolumes" -}}
{{- with include "ferrite.volumeMounts" . | trim }}
volumeMounts:
  {{- . | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "ferrite.deployment" -}}
apiVersion: apps/v1
kind: Deployment
metadata:
  {{- include "ferrite.metadata" . | nindent 2 }}
spec:
  replicas: {{ int .Values.replicaCount }}
  revisionHistoryLimit: 3
  selector:
    matchLabels:
      {{- include "ferrite.selectorLabels" . | nindent 6 }}
  strategy:
    {{- if .Values.strategy }}
    {{- toYaml .Values.strategy | nindent 4 }}
    {{- else if .Values.leaderElection.enabled }}
    # The new pod is ready before it leads, so the old one can wait for it.
    type: RollingUpdate
    rollingUpdate:
      maxSurge: 1
      maxUnavailable: 0
    {{- else }}
    # Without a lease a surge would be a second writer.
    type: Recreate
    {{- end }}
  template:
    metadata:
      labels:
        {{- include "ferrite.labels" . | nindent 8 }}
        {{- with .Values.podLabels }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      annotations:
        kubectl.kubernetes.io/default-container: {{ include "ferrite.controller" . }}
        {{- with .Values.podAnnotations }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
    spec:
      serviceAccountName: {{ include "ferrite.serviceAccountName" . }}
      automountServiceAccountToken: true
      terminationGracePeriodSeconds: {{ int .Values.terminationGracePeriodSeconds }}
      {{- if .Values.topologySpreadConstraints }}
      topologySpreadConstraints:
        {{- toYaml .Values.topologySpreadConstraints | nindent 8 }}
      {{- else if gt (int .Values.replicaCount) 1 }}
      topologySpreadConstraints:
        - maxSkew: 1
          topologyKey: kubernetes.io/hostname
          whenUnsatisfiable: ScheduleAnyway
          labelSelector:
            matchLabels:
              {{- include "ferrite.selectorLabels" . | nindent 14 }}
      {{- end }}
      {{- include "ferrite.podBasics" . | nindent 6 }}
      {{- with include "ferrite.podVolumes" . | trim }}
      {{- . | nindent 6 }}
      {{- end }}
      containers:
        - name: {{ include "ferrite.controller" . }}
          args:
            {{- include "ferrite.args" . | trim | nindent 12 }}
          ports:
            - name: http
              containerPort: {{ int .Values.metrics.port }}
              protocol: TCP
          livenessProbe:
            httpGet:
              path: /livez
              port: http
            periodSeconds: 10
            timeoutSeconds: 5
            failureThreshold: 6
          readinessProbe:
            httpGet:
              path: /readyz
              port: http
            periodSeconds: 5
            timeoutSeconds: 5
          {{- include "ferrite.containerBasics" . | nindent 10 }}
          {{- with include "ferrite.containerVolumes" . | trim }}
          {{- . | nindent 10 }}
          {{- end }}
{{- end -}}

{{- define "ferrite.podDisruptionBudget" -}}
{{- if .Values.podDisruptionBudget.enabled }}
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  {{- include "ferrite.metadata" . | nindent 2 }}
spec:
  # Not minAvailable: with one replica that would stop every drain.
  maxUnavailable: 1
  unhealthyPodEvictionPolicy: AlwaysAllow
  selector:
    matchLabels:
      {{- include "ferrite.selectorLabels" . | nindent 6 }}
{{- end }}
{{- end -}}

{{/*
Adds the fields that this controller needs to CRDs of other projects: once, before the pod that needs them starts, or
for as long as the release is installed. It has an account of its own, so that the controller cannot change CRDs.
*/}}
{{- define "ferrite.extendCrd" -}}
{{- $crds := (include "ferrite.rules" . | fromJson).extendCrd }}
{{- $mode := .Values.extendCrd.mode }}
{{- if and .Values.extendCrd.enabled .Values.rbac.create $crds (ne $mode "external") }}
{{- $name := printf "%s-extend-crd" (include "ferrite.fullname" . | trunc 52 | trimSuffix "-") }}
{{- $clusterName := printf "%s:extend-crd" (include "ferrite.clusterName" .) }}
{{- $namespace := include "ferrite.namespace" . }}
apiVersion: v1
kind: ServiceAccount
metadata:
  name: {{ $name }}
  namespace: {{ $namespace }}
  labels:
    {{- include "ferrite.labels" . | nindent 4 }}
  {{- if eq $mode "hook" }}
  annotations:
    {{- include "ferrite.hookRights" . | nindent 4 }}
  {{- end }}
automountServiceAccountToken: false
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  name: {{ $clusterName }}
  labels:
    {{- include "ferrite.labels" . | nindent 4 }}
  {{- if eq $mode "hook" }}
  annotations:
    {{- include "ferrite.hookRights" . | nindent 4 }}
  {{- end }}
rules:
  - apiGroups: [apiextensions.k8s.io]
    resources: [customresourcedefinitions]
    resourceNames:
      {{- toYaml $crds | nindent 6 }}
    verbs: {{ ternary "[get, list, patch, watch]" "[get, patch]" (eq $mode "keep") }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata:
  name: {{ $clusterName }}
  labels:
    {{- include "ferrite.labels" . | nindent 4 }}
  {{- if eq $mode "hook" }}
  annotations:
    {{- include "ferrite.hookRights" . | nindent 4 }}
  {{- end }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: ClusterRole
  name: {{ $clusterName }}
subjects:
  - kind: ServiceAccount
    name: {{ $name }}
    namespace: {{ $namespace }}
---
{{- if eq $mode "keep" }}
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {{ $name }}
  namespace: {{ $namespace }}
  labels:
    {{- include "ferrite.labels" . | nindent 4 }}
spec:
  # Two would do no harm, but one is enough: what it adds is added once.
  replicas: 1
  selector:
    matchLabels:
      app.kubernetes.io/name: {{ include "ferrite.name" . }}-extend-crd
      app.kubernetes.io/instance: {{ .Release.Name }}
  template:
    metadata:
      labels:
        app.kubernetes.io/name: {{ include "ferrite.name" . }}-extend-crd
        app.kubernetes.io/instance: {{ .Release.Name }}
    spec:
      serviceAccountName: {{ $name }}
      automountServiceAccountToken: true
      {{- include "ferrite.podBasics" . | nindent 6 }}
      containers:
        - name: extend-crd
          args: [extend-crd, --keep]
          {{- include "ferrite.containerBasics" . | nindent 10 }}
{{- else }}
apiVersion: batch/v1
kind: Job
metadata:
  name: {{ $name }}
  namespace: {{ $namespace }}
  labels:
    {{- include "ferrite.labels" . | nindent 4 }}
  annotations:
    {{- include "ferrite.hook" . | nindent 4 }}
spec:
  backoffLimit: 3
  activeDeadlineSeconds: 120
  # Helm deletes it by itself. Applied without helm, it would be in the way of the next one.
  ttlSecondsAfterFinished: 600
  template:
    metadata:
      labels:
        app.kubernetes.io/name: {{ include "ferrite.name" . }}-extend-crd
        app.kubernetes.io/instance: {{ .Release.Name }}
    spec:
      serviceAccountName: {{ $name }}
      automountServiceAccountToken: true
      restartPolicy: Never
      {{- include "ferrite.podBasics" . | nindent 6 }}
      containers:
        - name: extend-crd
          args: [extend-crd]
          {{- include "ferrite.containerBasics" . | nindent 10 }}
{{- end }}
{{- end }}
{{- end -}}

{{/* Annotations of the hook's job: it stays when it fails, for its log. */}}
{{- define "ferrite.hook" -}}
helm.sh/hook: pre-install,pre-upgrade
helm.sh/hook-weight: "-5"
helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded
{{- end -}}

{{/* Annotations of what gives the job its rights, which is made before it and never stays. */}}
{{- define "ferrite.hookRights" -}}
helm.sh/hook: pre-install,pre-upgrade
helm.sh/hook-weight: "-10"
helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded,hook-failed
{{- end -}}

{{/* `helm test`: the controller's own look at all that it needs, under its own account. */}}
{{- define "ferrite.test" -}}
apiVersion: v1
kind: Pod
metadata:
  name: {{ include "ferrite.fullname" . | trunc 57 | trimSuffix "-" }}-check
  namespace: {{ include "ferrite.namespace" . }}
  labels:
    app.kubernetes.io/name: {{ include "ferrite.name" . }}-check
    app.kubernetes.io/instance: {{ .Release.Name }}
  annotations:
    helm.sh/hook: test
    # Not hook-succeeded: Helm 3 would delete the pod before --logs reads it.
    helm.sh/hook-delete-policy: before-hook-creation
spec:
  serviceAccountName: {{ include "ferrite.serviceAccountName" . }}
  automountServiceAccountToken: true
  restartPolicy: Never
  {{- include "ferrite.podBasics" . | nindent 2 }}
  {{- with include "ferrite.podVolumes" . | trim }}
  {{- . | nindent 2 }}
  {{- end }}
  containers:
    - name: check
      args:
        {{- include "ferrite.args" . | trim | nindent 8 }}
        - check
      {{- include "ferrite.containerBasics" . | nindent 6 }}
      {{- with include "ferrite.containerVolumes" . | trim }}
      {{- . | nindent 6 }}
      {{- end }}
{{- end -}}
