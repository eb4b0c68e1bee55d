{{- define "agent.labels" -}}
app.kubernetes.io/name: anabranch-agent
app.kubernetes.io/part-of: anabranch
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
{{- end }}
