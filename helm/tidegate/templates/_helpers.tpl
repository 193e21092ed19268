{{- define "tidegate.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 53 | trimSuffix "-" -}}
{{- end -}}

{{- define "tidegate.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 53 | trimSuffix "-" -}}
{{- else if contains (include "tidegate.name" .) .Release.Name -}}
{{- .Release.Name | trunc 53 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "tidegate.name" .) | trunc 53 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{/* What never changes in a release: selectors. */}}
{{- define "tidegate.instance" -}}
app.kubernetes.io/name: {{ include "tidegate.name" . | quote }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end -}}

{{- define "tidegate.labels" -}}
{{- $own := include "tidegate.instance" . | fromYaml -}}
{{- $_ := set $own "app.kubernetes.io/version" (.Chart.AppVersion | toString) -}}
{{- $_ := set $own "app.kubernetes.io/managed-by" .Release.Service -}}
{{- $_ := set $own "helm.sh/chart" (printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_") -}}
{{- toYaml (merge $own .Values.commonLabels) -}}
{{- end -}}

{{/* Labels of a pod: {root, component, labels}. What selectors need is of the chart, whatever `labels` say. */}}
{{- define "tidegate.podLabels" -}}
{{- $own := include "tidegate.instance" .root | fromYaml -}}
{{- $_ := set $own "app.kubernetes.io/component" .component -}}
{{- if and (include "tidegate.oneNode" .root) (ne .component "executor") -}}
{{- $_ := set $own "tidegate/volume" (include "tidegate.volumeLabel" .root) -}}
{{- end -}}
{{- toYaml (merge $own (default (dict) .labels) (include "tidegate.labels" .root | fromYaml)) -}}
{{- end -}}

{{/* Name, namespace, labels and annotations of an object: {root, suffix, annotations}. */}}
{{- define "tidegate.metadata" -}}
name: {{ printf "%s%s" (include "tidegate.fullname" .root) .suffix | quote }}
namespace: {{ .root.Release.Namespace | quote }}
labels:
  {{- include "tidegate.labels" .root | nindent 2 }}
{{- with merge (dict) (default (dict) .annotations) .root.Values.commonAnnotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "tidegate.image" -}}
{{- with .Values.image -}}
{{- if .digest -}}
{{ .repository }}@{{ .digest }}
{{- else -}}
{{ .repository }}:{{ .tag | default $.Chart.AppVersion }}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "tidegate.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{ default (include "tidegate.fullname" .) .Values.serviceAccount.name }}
{{- else -}}
{{ default "default" .Values.serviceAccount.name }}
{{- end -}}
{{- end -}}

{{/* Of the check before an upgrade: the daemon's, but for the upgrade that makes it. */}}
{{- define "tidegate.checkAccount" -}}
{{- $name := include "tidegate.serviceAccountName" . -}}
{{- if and .Values.serviceAccount.create .Release.IsUpgrade (not (lookup "v1" "ServiceAccount" .Release.Namespace $name)) -}}
default
{{- else -}}
{{ $name }}
{{- end -}}
{{- end -}}

{{- define "tidegate.onKubernetes" -}}
{{- if eq .Values.spark.mode "kubernetes" -}}true{{- end -}}
{{- end -}}

{{/* What the command line says about state, as a list. */}}
{{- define "tidegate.words" -}}
{{- $words := list -}}
{{- range $word, $names := pick .Values.start "keep" "reset" "drop" -}}
{{- range $names -}}{{- $words = append $words (printf "--%s=%s" $word .) -}}{{- end -}}
{{- end -}}
{{- toJson $words -}}
{{- end -}}

{{- define "tidegate.beginAnew" -}}
{{- if or .Values.start.beginAnew (eq .Values.upgrade.mode "stateless") -}}true{{- end -}}
{{- end -}}

{{- define "tidegate.file" -}}
/etc/tidegate/pipeline/{{ if .Values.pipelineConfigMap.name }}{{ .Values.pipelineConfigMap.key }}{{ else }}pipeline.yaml{{ end }}
{{- end -}}

{{/* A directory of its own for every revision makes an upgrade begin anew, and a restart of a pod continue. */}}
{{- define "tidegate.checkpoints" -}}
{{- $base := default "file:///var/lib/tidegate/checkpoints" .Values.checkpoints.address | trimSuffix "/" -}}
{{- if eq .Values.upgrade.mode "stateless" -}}
{{ $base }}/revision-{{ .Release.Revision }}
{{- else -}}
{{ $base }}
{{- end -}}
{{- end -}}

{{- define "tidegate.claimName" -}}
{{- default (printf "%s-checkpoints" (include "tidegate.fullname" .)) .Values.checkpoints.volume.existingClaim -}}
{{- end -}}

{{/* The claim as a label, which is shorter than a name may be and ends with a letter or digit. */}}
{{- define "tidegate.volumeLabel" -}}
{{- include "tidegate.claimName" . | trunc 63 | regexFind "^.*[A-Za-z0-9]" -}}
{{- end -}}

{{- define "tidegate.accessModes" -}}
{{- if .Values.checkpoints.volume.accessModes -}}
{{- toYaml .Values.checkpoints.volume.accessModes -}}
{{- else if include "tidegate.onKubernetes" . -}}
- ReadWriteMany
{{- else -}}
- ReadWriteOnce
{{- end -}}
{{- end -}}

{{/* Where one node has to hold every pod that uses the volume. */}}
{{- define "tidegate.oneNode" -}}
{{- if and (not .Values.checkpoints.address) (not (contains "ReadWriteMany" (include "tidegate.accessModes" .))) -}}true{{- end -}}
{{- end -}}

{{/* Variables of the daemon: the chart's, those from Secrets, then `extraEnv`, each name once. */}}
{{- define "tidegate.env" -}}
{{- $all := list
  (dict "name" "POD_NAME" "valueFrom" (dict "fieldRef" (dict "fieldPath" "metadata.name")))
  (dict "name" "POD_IP" "valueFrom" (dict "fieldRef" (dict "fieldPath" "status.podIP")))
  (dict "name" "HOME" "value" "/tmp")
  (dict "name" "TIDEGATE_SITE" "value" "/etc/tidegate/site/site.yaml") -}}
{{- range .Values.secrets.env -}}
{{- $all = append $all (dict "name" .name "valueFrom" (dict "secretKeyRef" (dict "name" .secretName "key" .key))) -}}
{{- end -}}
{{- $last := dict -}}
{{- range $index, $one := concat $all .Values.extraEnv -}}{{- $_ := set $last $one.name $one -}}{{- end -}}
{{- $names := list -}}
{{- range concat $all .Values.extraEnv -}}{{- $names = append $names .name -}}{{- end -}}
{{- range $names | uniq }}
- {{ toYaml (get $last .) | nindent 2 | trim }}
{{- end }}
{{- end -}}

{{/* What daemon and executors have in common. */}}
{{- define "tidegate.sharedVolumes" -}}
- name: tmp
  emptyDir:
    sizeLimit: {{ .Values.scratch.sizeLimit }}
    {{- with .Values.scratch.medium }}
    medium: {{ . }}
    {{- end }}
{{- if not .Values.checkpoints.address }}
- name: checkpoints
  persistentVolumeClaim:
    claimName: {{ include "tidegate.claimName" . | quote }}
{{- end }}
{{- range $index, $file := .Values.secrets.files }}
- name: secret-{{ $index }}
  secret:
    secretName: {{ $file.secretName | quote }}
    defaultMode: 288
{{- end }}
{{- with .Values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "tidegate.sharedMounts" -}}
- name: tmp
  mountPath: /tmp
{{- if not .Values.checkpoints.address }}
- name: checkpoints
  mountPath: /var/lib/tidegate
{{- end }}
{{- range $index, $file := .Values.secrets.files }}
- name: secret-{{ $index }}
  mountPath: {{ $file.mountPath }}
  readOnly: true
{{- end }}
{{- with .Values.extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* Volumes of the daemon and of hooks: {root, infix}, the latter in the names of the ConfigMaps. */}}
{{- define "tidegate.volumes" -}}
- name: site
  configMap:
    name: {{ printf "%s%s-site" (include "tidegate.fullname" .root) .infix | quote }}
- name: pipeline
  configMap:
    name: {{ default (printf "%s%s-pipeline" (include "tidegate.fullname" .root) .infix) .root.Values.pipelineConfigMap.name | quote }}
{{- if .root.Values.spark.external.secretName }}
- name: spark-secret
  secret:
    secretName: {{ .root.Values.spark.external.secretName | quote }}
    defaultMode: 288
{{- end }}
{{- if .root.Values.http.readToken.secretName }}
- name: read-token
  secret:
    secretName: {{ .root.Values.http.readToken.secretName | quote }}
    defaultMode: 288
{{- end }}
{{ include "tidegate.sharedVolumes" .root }}
{{- end -}}

{{- define "tidegate.mounts" -}}
- name: site
  mountPath: /etc/tidegate/site
  readOnly: true
- name: pipeline
  mountPath: /etc/tidegate/pipeline
  readOnly: true
{{- if .Values.spark.external.secretName }}
- name: spark-secret
  mountPath: /etc/tidegate/spark
  readOnly: true
{{- end }}
{{- if .Values.http.readToken.secretName }}
- name: read-token
  mountPath: /etc/tidegate/read-token
  readOnly: true
{{- end }}
- name: tmp
  mountPath: /opt/tidegate/cache/schemas
  subPath: schemas
{{ include "tidegate.sharedMounts" . }}
{{- end -}}

{{/* The pod of a hook: {root, suffix, infix, account, command, args}. A cloud gives it the daemon's role by account and
labels. */}}
{{- define "tidegate.hookPod" -}}
metadata:
  labels:
    {{- include "tidegate.podLabels" (dict "root" .root "component" .suffix "labels" .root.Values.podLabels) | nindent 4 }}
spec:
  restartPolicy: Never
  serviceAccountName: {{ .account | quote }}
  automountServiceAccountToken: false
  enableServiceLinks: false
  {{- with .root.Values.image.pullSecrets }}
  imagePullSecrets:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  securityContext:
    {{- toYaml .root.Values.podSecurityContext | nindent 4 }}
  {{- with .root.Values.nodeSelector }}
  nodeSelector:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .root.Values.tolerations }}
  tolerations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .root.Values.hostAliases }}
  hostAliases:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- if include "tidegate.oneNode" .root }}
  affinity:
    podAffinity:
      requiredDuringSchedulingIgnoredDuringExecution:
        - topologyKey: kubernetes.io/hostname
          labelSelector:
            matchLabels:
              tidegate/volume: {{ include "tidegate.volumeLabel" .root | quote }}
  {{- end }}
  containers:
    - name: {{ .suffix }}
      image: {{ include "tidegate.image" .root }}
      imagePullPolicy: {{ .root.Values.image.pullPolicy }}
      {{- with .command }}
      command: {{ toJson . }}
      {{- end }}
      args: {{ toJson .args }}
      env:
        {{- include "tidegate.env" .root | trim | nindent 8 }}
      {{- with .root.Values.extraEnvFrom }}
      envFrom:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      securityContext:
        {{- toYaml .root.Values.securityContext | nindent 8 }}
      resources:
        requests: {cpu: 100m, memory: 512Mi}
        limits: {memory: 1Gi}
      volumeMounts:
        {{- include "tidegate.mounts" .root | nindent 8 }}
  volumes:
    {{- include "tidegate.volumes" . | nindent 4 }}
{{- end -}}
