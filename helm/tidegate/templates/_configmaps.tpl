{{/* The data of both ConfigMaps, which the upgrade check has copies of. */}}
{{- define "tidegate.siteData" -}}
site.yaml: |
  {{- include "tidegate.site" . | nindent 2 }}
{{- if include "tidegate.onKubernetes" . }}
executor.yaml: |
  {{- include "tidegate.executorTemplate" . | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "tidegate.pipelineData" -}}
pipeline.yaml: {{ toJson .Values.pipeline }}
{{- with .Values.files }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* Below `data` in both: files that are no text. */}}
{{- define "tidegate.pipelineBinaryData" -}}
{{- with .Values.binaryFiles }}
binaryData:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}
