{{- define "anabranch.labels" -}}
app.kubernetes.io/name: anabranch
app.kubernetes.io/component: {{ .component }}
app.kubernetes.io/part-of: anabranch
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
{{- end }}

{{- define "anabranch.selector" -}}
app.kubernetes.io/name: anabranch
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{- /* In a policy: it speaks about one part's account. */}}
{{- define "anabranch.account" -}}
matchConditions:
    - name: the-account
      expression: request.userInfo.username == 'system:serviceaccount:clusternet-system:{{ . }}'
{{- end }}

{{- /* A Deployment of one part: dict "root" "component" "account" "settings" "args" "ports" "mirrors" "env" "volumes" "mounts" */}}
{{- define "anabranch.deployment" -}}
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {{ .account }}
  namespace: clusternet-system
  labels:
    {{- include "anabranch.labels" . | nindent 4 }}
spec:
  replicas: {{ .settings.replicas }}
  selector:
    matchLabels:
      {{- include "anabranch.selector" . | nindent 6 }}
  strategy:
    rollingUpdate:
      maxUnavailable: 1
      maxSurge: 1
  template:
    metadata:
      labels:
        {{- include "anabranch.labels" . | nindent 8 }}
      annotations:
        prometheus.io/scrape: "true"
        prometheus.io/port: "10660"
        prometheus.io/path: /metrics
    spec:
      serviceAccountName: {{ .account }}
      terminationGracePeriodSeconds: 20
      {{- with .root.Values.priorityClassName }}
      priorityClassName: {{ . }}
      {{- end }}
      {{- with .root.Values.image.pullSecrets }}
      imagePullSecrets:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with .root.Values.nodeSelector }}
      nodeSelector:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with .root.Values.tolerations }}
      tolerations:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with .root.Values.affinity }}
      affinity:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      topologySpreadConstraints:
        - maxSkew: 1
          topologyKey: kubernetes.io/hostname
          whenUnsatisfiable: ScheduleAnyway
          labelSelector:
            matchLabels:
              {{- include "anabranch.selector" . | nindent 14 }}
      securityContext:
        runAsNonRoot: true
        runAsUser: 65532
        runAsGroup: 65532
        fsGroup: 65532
        seccompProfile:
          type: RuntimeDefault
      containers:
        - name: {{ .component }}
          image: "{{ .root.Values.image.repository }}:{{ .root.Values.image.tag }}"
          imagePullPolicy: {{ .root.Values.image.pullPolicy }}
          args:
            - {{ .component }}
            - --admin=0.0.0.0:10660
            {{- if .mirrors }}
            - --data-dir=/data
            {{- end }}
            {{- range .args }}
            - {{ . }}
            {{- end }}
          env:
            - name: ANABRANCH_LOG
              value: {{ .root.Values.log.filter | quote }}
            - name: ANABRANCH_LOG_FORMAT
              value: {{ .root.Values.log.format | quote }}
            {{- with .env }}
            {{- toYaml . | nindent 12 }}
            {{- end }}
          ports:
            - name: admin
              containerPort: 10660
            {{- with .ports }}
            {{- toYaml . | nindent 12 }}
            {{- end }}
          livenessProbe:
            httpGet: {path: /livez, port: admin}
            periodSeconds: 10
            failureThreshold: 6
          readinessProbe:
            httpGet: {path: /readyz, port: admin}
            periodSeconds: 5
          startupProbe:
            httpGet: {path: /livez, port: admin}
            periodSeconds: 2
            failureThreshold: 30
          resources:
            {{- toYaml .settings.resources | nindent 12 }}
          securityContext:
            allowPrivilegeEscalation: false
            readOnlyRootFilesystem: true
            runAsNonRoot: true
            capabilities:
              drop: [ALL]
          volumeMounts:
            - {name: tmp, mountPath: /tmp}
            {{- if .mirrors }}
            - {name: data, mountPath: /data}
            {{- end }}
            {{- with .mounts }}
            {{- toYaml . | nindent 12 }}
            {{- end }}
      volumes:
        - name: tmp
          emptyDir: {}
        {{- if .mirrors }}
        - name: data
          emptyDir:
            sizeLimit: {{ .mirrors }}
        {{- end }}
        {{- with .volumes }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
{{- end }}
