{{- define "peik.name" -}}
{{- if contains .Chart.Name .Release.Name }}{{ .Release.Name | trunc 52 | trimSuffix "-" }}{{ else }}{{ printf "%s-%s" .Release.Name .Chart.Name | trunc 52 | trimSuffix "-" }}{{ end }}
{{- end }}

{{- define "peik.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "peik.labels" -}}
{{ include "peik.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{/* The pod, the same for both kinds of stores but for its volume. */}}
{{- define "peik.pod" -}}
metadata:
  labels:
    {{- include "peik.labels" . | nindent 4 }}
  annotations:
    # A change of a secret starts the pods again.
    checksum/secrets: {{ .Values.secrets | toJson | sha256sum }}
    {{- with .Values.podAnnotations }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
spec:
  automountServiceAccountToken: false
  enableServiceLinks: false # else Kubernetes sets PEIK_PORT to tcp://…
  terminationGracePeriodSeconds: {{ .Values.terminationGracePeriodSeconds }}
  securityContext:
    runAsNonRoot: true
    runAsUser: 10001
    runAsGroup: 10001
    fsGroup: 10001
    fsGroupChangePolicy: OnRootMismatch
    seccompProfile: {type: RuntimeDefault}
  {{- with .Values.imagePullSecrets }}
  imagePullSecrets:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  containers:
    - name: peik
      image: "{{ .Values.image.repository }}:{{ .Values.image.tag }}"
      imagePullPolicy: {{ .Values.image.pullPolicy }}
      args: [serve]
      env:
        - {name: PEIK_HOST, value: "0.0.0.0"}
        - {name: PEIK_PORT, value: "8081"}
        - {name: PEIK_HOME, value: /var/lib/peik}
        {{- range $name, $value := .Values.settings }}
        - name: {{ $name }}
          value: {{ $value | toString | quote }}
        {{- end }}
      {{- if or .Values.existingSecret .Values.secrets }}
      envFrom:
        - secretRef:
            name: {{ .Values.existingSecret | default (include "peik.name" .) }}
      {{- end }}
      ports:
        - {name: http, containerPort: 8081}
      # A large backlog, or a change of the schema, is worked through before Peik listens.
      startupProbe:
        httpGet: {path: /health, port: http}
        periodSeconds: 5
        timeoutSeconds: 4
        failureThreshold: 360
      livenessProbe:
        httpGet: {path: /health, port: http}
        periodSeconds: 10
        timeoutSeconds: 5
        failureThreshold: 6
      readinessProbe:
        httpGet: {path: /ready, port: http}
        periodSeconds: 5
        timeoutSeconds: 4
      lifecycle:
        preStop: # until nobody is sent here any more
          exec: {command: [sleep, "3"]}
      securityContext:
        allowPrivilegeEscalation: false
        readOnlyRootFilesystem: true
        capabilities: {drop: [ALL]}
      resources:
        {{- toYaml .Values.resources | nindent 8 }}
      volumeMounts:
        - {name: home, mountPath: /var/lib/peik}
        - {name: tmp, mountPath: /tmp}
  volumes:
    - name: tmp
      emptyDir: {sizeLimit: 64Mi}
    {{- if eq .Values.store "server" }}
    - name: home # files on their way; letters are in the store
      emptyDir: {}
    {{- end }}
  {{- with .Values.nodeSelector }}
  nodeSelector:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.tolerations }}
  tolerations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.affinity }}
  affinity:
    {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end }}
