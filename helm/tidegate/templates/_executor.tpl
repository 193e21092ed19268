{{/* The template that Spark makes executor pods from; it adds image, resources, variables and its own volumes. */}}
{{- define "tidegate.executorTemplate" -}}
apiVersion: v1
kind: Pod
metadata:
  labels:
    {{- include "tidegate.podLabels" (dict "root" . "component" "executor" "labels" .Values.spark.executor.podLabels) | nindent 4 }}
  {{- with .Values.spark.executor.podAnnotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
spec:
  automountServiceAccountToken: false
  enableServiceLinks: false
  restartPolicy: Never
  terminationGracePeriodSeconds: 10
  securityContext:
    {{- toYaml .Values.podSecurityContext | nindent 4 }}
  {{- with .Values.spark.executor }}
  {{- with .nodeSelector }}
  nodeSelector:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .tolerations }}
  tolerations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .affinity }}
  affinity:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .topologySpreadConstraints }}
  topologySpreadConstraints:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .priorityClassName }}
  priorityClassName: {{ . }}
  {{- end }}
  {{- end }}
  {{- with .Values.hostAliases }}
  hostAliases:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  containers:
    - name: executor
      securityContext:
        {{- toYaml .Values.securityContext | nindent 8 }}
      env:
        - name: HOME
          value: /tmp
      volumeMounts:
        {{- include "tidegate.sharedMounts" . | nindent 8 }}
  volumes:
    {{- include "tidegate.sharedVolumes" . | nindent 4 }}
{{- end -}}
