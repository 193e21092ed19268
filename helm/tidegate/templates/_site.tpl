{{/* What the site file says (TIDEGATE_SITE): the chart's own settings, and `settings` over them. */}}
{{- define "tidegate.site" -}}
{{- include "tidegate.refuse" (dict "root" . "path" (list "checkpoints" "directory") "value" "checkpoints") -}}
{{- include "tidegate.refuse" (dict "root" . "path" (list "http" "host") "value" "http") -}}
{{- include "tidegate.refuse" (dict "root" . "path" (list "http" "port") "value" "http.port") -}}
{{- if .Values.http.readToken.secretName -}}
{{- include "tidegate.refuse" (dict "root" . "path" (list "http" "read_token_file") "value" "http.readToken") -}}
{{- end -}}
{{- include "tidegate.refuse" (dict "root" . "path" (list "runtime" "shutdown_grace") "value" "stop.graceSeconds") -}}
{{- include "tidegate.refuse" (dict "root" . "path" (list "spark" "master") "value" "spark.mode") -}}
{{- $own := dict
  "checkpoints" (dict "directory" (include "tidegate.checkpoints" .))
  "http" (merge (dict "host" "0.0.0.0" "port" (int .Values.http.port)) (include "tidegate.readTokenFile" . | fromYaml))
  "runtime" (dict "shutdown_grace" (printf "%ds" (int .Values.stop.graceSeconds)))
  "logging" (dict "format" "json")
  "spark" (include "tidegate.spark" . | fromYaml) -}}
{{- toYaml (mergeOverwrite $own (deepCopy .Values.settings)) -}}
{{- end -}}

{{- define "tidegate.refuse" -}}
{{- $section := get .root.Values.settings (first .path) -}}
{{- if and (kindIs "map" $section) (hasKey $section (last .path)) -}}
{{- fail (printf "settings.%s is set by the chart: remove it, and use the value `%s`" (join "." .path) .value) -}}
{{- end -}}
{{- end -}}

{{/* As far as the chart can see it, else 0: the pipeline may be in a ConfigMap, and a variable. */}}
{{- define "tidegate.slots" -}}
{{- $file := fromYaml .Values.pipeline -}}
{{- $found := default (default (ternary 0 1 (empty .Values.pipeline)) $file.parallelism) .Values.settings.parallelism -}}
{{- ternary 0 $found (kindIs "string" $found) | int -}}
{{- end -}}

{{- define "tidegate.executors" -}}
{{- $slots := include "tidegate.slots" . | int -}}
{{- if lt $slots 1 -}}
{{- fail "settings.parallelism is needed with spark.mode=kubernetes: the chart counts executor pods with it" -}}
{{- end -}}
{{- divf $slots .Values.spark.executor.cores | ceil | int -}}
{{- end -}}

{{/* Spark's properties of the mode. What Spark needs to know of the pod comes from its variables. */}}
{{- define "tidegate.spark" -}}
{{- if eq .Values.spark.mode "local" }}
{{- $slots := include "tidegate.slots" . }}
{{- if ne $slots "0" }}
master: "local[{{ $slots }}]"
{{- end }}
{{- else }}
spark.driver.host: "${POD_IP}"
spark.driver.bindAddress: "${POD_IP}"
spark.driver.port: {{ .Values.spark.ports.driver | quote }}
spark.driver.blockManager.port: {{ .Values.spark.ports.blockManager | quote }}
spark.blockManager.port: {{ .Values.spark.ports.blockManager | quote }}
spark.executor.cores: {{ .Values.spark.executor.cores | quote }}
spark.executor.memory: {{ .Values.spark.executor.memory }}
{{- end }}
{{- if eq .Values.spark.mode "external" }}
master: {{ required "spark.external.master is needed with spark.mode=external: spark://host:7077, or yarn" .Values.spark.external.master | quote }}
{{- with .Values.spark.external.driverHost }}
spark.driver.host: {{ . | quote }}
{{- end }}
{{- if .Values.spark.external.secretName }}
spark.authenticate.secret: "${file:/etc/tidegate/spark/{{ .Values.spark.external.secretKey }}}"
{{- end }}
{{- end }}
{{- if eq .Values.spark.mode "kubernetes" }}
master: "k8s://https://${KUBERNETES_SERVICE_HOST}:${KUBERNETES_SERVICE_PORT}"
spark.kubernetes.namespace: {{ .Release.Namespace | quote }}
spark.kubernetes.driver.pod.name: "${POD_NAME}"
spark.kubernetes.container.image: {{ include "tidegate.image" . | quote }}
spark.kubernetes.container.image.pullPolicy: {{ .Values.image.pullPolicy | quote }}
{{- with .Values.image.pullSecrets }}
spark.kubernetes.container.image.pullSecrets: {{ range $index, $one := . }}{{ if $index }},{{ end }}{{ $one.name }}{{ end }}
{{- end }}
spark.kubernetes.authenticate.executor.serviceAccountName: {{ include "tidegate.executorAccount" . | quote }}
spark.kubernetes.executor.podTemplateFile: file:///etc/tidegate/site/executor.yaml
spark.kubernetes.executor.podTemplateContainerName: executor
spark.executor.instances: {{ include "tidegate.executors" . | quote }}
spark.executor.memoryOverhead: {{ .Values.spark.executor.memoryOverhead }}
spark.kubernetes.executor.request.cores: {{ default (.Values.spark.executor.cores | toString) .Values.spark.executor.cpuRequest | quote }}
{{- with .Values.spark.executor.cpuLimit }}
spark.kubernetes.executor.limit.cores: {{ . | quote }}
{{- end }}
{{- end }}
{{- end -}}

{{- define "tidegate.executorAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{ include "tidegate.fullname" . }}-executor
{{- else -}}
{{ default "default" .Values.serviceAccount.name }}
{{- end -}}
{{- end -}}

{{/* `http` of the settings over that of the pipeline, as far as the chart can see it. */}}
{{- define "tidegate.http" -}}
{{- $file := fromYaml .Values.pipeline -}}
{{- $own := include "tidegate.readTokenFile" . | fromYaml -}}
{{- toYaml (mergeOverwrite (default dict $file.http) $own (deepCopy (default dict .Values.settings.http))) -}}
{{- end -}}

{{- define "tidegate.readTokenFile" -}}
{{- if .Values.http.readToken.secretName -}}
read_token_file: {{ printf "/etc/tidegate/read-token/%s" .Values.http.readToken.key | quote }}
{{- end -}}
{{- end -}}

{{/* Whether HTTP is HTTPS. */}}
{{- define "tidegate.tls" -}}
{{- $http := include "tidegate.http" . | fromYaml -}}
{{- toYaml (default dict $http.tls) -}}
{{- end -}}

{{- define "tidegate.scheme" -}}
{{- ternary "http" "https" (empty (include "tidegate.tls" . | fromYaml)) -}}
{{- end -}}
