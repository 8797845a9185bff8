{{- define "kv.probes" -}}
startupProbe:
  httpGet: {path: /health/started, port: admin}
  periodSeconds: 1
  failureThreshold: 600
readinessProbe:
  httpGet: {path: /health/ready, port: admin}
  periodSeconds: 2
  timeoutSeconds: 2
  failureThreshold: 3
livenessProbe:
  httpGet: {path: /health/alive, port: admin}
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 6
{{- end -}}
