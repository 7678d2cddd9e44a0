{{/* Names begin with the release's, so that two releases share a namespace. */}}
{{- define "pairmark.name" -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- end }}

{{- define "pairmark.labels" -}}
labels: {app.kubernetes.io/name: pairmark, app.kubernetes.io/instance: {{ include "pairmark.name" . }}}
{{- end }}

{{- define "pairmark.image" -}}
{{ printf "%s:%s" .Values.image.repository (.Values.image.tag | default .Chart.AppVersion) }}
{{- end }}

{{/* What every pod has alike: no rights, no token of the cluster. */}}
{{- define "pairmark.pod" -}}
automountServiceAccountToken: false
securityContext: {runAsNonRoot: true, runAsUser: 10001, fsGroup: 10001, seccompProfile: {type: RuntimeDefault}}
{{- with .Values.image.pullSecrets }}
imagePullSecrets:
{{- range . }}
  - name: {{ . }}
{{- end }}
{{- end }}
{{- end }}

{{- define "pairmark.container" -}}
image: {{ include "pairmark.image" . }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
securityContext: {allowPrivilegeEscalation: false, readOnlyRootFilesystem: true, capabilities: {drop: [ALL]}}
{{- end }}

{{- define "pairmark.environment" -}}
envFrom:
  - configMapRef: {name: {{ include "pairmark.name" . }}}
  - secretRef: {name: {{ .Values.secret }}}
{{- end }}

{{/* The root file system is read-only: kernels that the image compiled go where more can be added. */}}
{{- define "pairmark.kernels" -}}
initContainers:
  - name: kernels
    {{- include "pairmark.container" . | nindent 4 }}
    command: ["cp", "-a", "/var/cache/pairmark/.", "/cache/"]
    volumeMounts:
      - {name: cache, mountPath: /cache}
{{- end }}

{{- define "pairmark.mounts" -}}
volumeMounts:
  - {name: home, mountPath: /var/lib/pairmark}
  - {name: cache, mountPath: /var/cache/pairmark}
  - {name: tmp, mountPath: /tmp}
{{- end }}

{{/* Copies of artefacts and gallery indexes, made again from the database and the object store. */}}
{{- define "pairmark.volumes" -}}
volumes:
  - {name: home, emptyDir: {}}
  - {name: cache, emptyDir: {}}
  - {name: tmp, emptyDir: {}}
{{- end }}
