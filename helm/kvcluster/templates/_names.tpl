{{- define "kv.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- ternary .Release.Name (printf "%s-%s" .Release.Name $name) (contains $name .Release.Name) | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "kv.selector" -}}
app.kubernetes.io/name: {{ default .Chart.Name .Values.nameOverride }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "kv.labels" -}}
{{ include "kv.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end -}}

{{- /* Image: (list root part), where part is a key under .Values.image */ -}}
{{- define "kv.image" -}}
{{- $root := index . 0 -}}
{{- $image := index $root.Values.image (index . 1) -}}
{{- with $root.Values.image.registry }}{{ . | trimSuffix "/" }}/{{ end }}{{ $image.repository }}:{{ $image.tag | default $root.Chart.AppVersion }}
{{- end -}}

{{- define "kv.cluster" -}}
{{- .Values.cluster.name | default .Release.Name -}}
{{- end -}}

{{- define "kv.scheme" -}}
{{- ternary "https" "http" .Values.tls.enabled -}}
{{- end -}}

{{- /* Host name of a Service: (list root name) */ -}}
{{- define "kv.host" -}}
{{- $root := index . 0 -}}
{{- index . 1 }}.{{ $root.Release.Namespace }}.svc.{{ $root.Values.clusterDomain }}
{{- end -}}

{{- define "kv.coordinator" -}}
{{- $root := . -}}
etcd=
{{- if .Values.etcd.enabled -}}
{{- $service := printf "%s-etcd" (include "kv.fullname" .) -}}
{{- range $index := until (int .Values.etcd.count) }}{{ if $index }},{{ end }}http://{{ $service }}-{{ $index }}.{{ include "kv.host" (list $root $service) }}:2379{{ end -}}
{{- else -}}
{{- join "," .Values.externalEtcd.endpoints -}}
{{- end -}}
{{- end -}}

{{- define "kv.nodeSecret" -}}
{{- .Values.tls.nodeSecret | default (printf "%s-node-tls" (include "kv.fullname" .)) -}}
{{- end -}}

{{- define "kv.routerSecret" -}}
{{- .Values.tls.routerSecret | default (printf "%s-router-tls" (include "kv.fullname" .)) -}}
{{- end -}}

{{- /* What the restricted Pod Security Standard requires of a pod. */ -}}
{{- define "kv.podSecurity" -}}
runAsNonRoot: true
runAsUser: 1654
runAsGroup: 1654
fsGroup: 1654
fsGroupChangePolicy: OnRootMismatch
seccompProfile: {type: RuntimeDefault}
{{- end -}}

{{- define "kv.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end -}}

{{- /* Scheduling: (list root part values). Pods are spread over machines where possible, but a single machine is enough. */ -}}
{{- define "kv.scheduling" -}}
{{- $root := index . 0 -}}
{{- $part := index . 1 -}}
{{- $values := index . 2 -}}
affinity:
  podAntiAffinity:
    preferredDuringSchedulingIgnoredDuringExecution:
      - weight: 100
        podAffinityTerm:
          topologyKey: kubernetes.io/hostname
          labelSelector:
            matchLabels:
              {{- include "kv.selector" $root | nindent 14 }}
              app.kubernetes.io/component: {{ $part }}
{{- with $values.topologyKey }}
topologySpreadConstraints:
  - maxSkew: 1
    topologyKey: {{ . }}
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels:
        {{- include "kv.selector" $root | nindent 8 }}
        app.kubernetes.io/component: {{ $part }}
{{- end }}
{{- with $values.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with $root.Values.image.pullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- /* Settings as environment variables: journal-retention-mib: 512 -> KVCLUSTER_JOURNAL_RETENTION_MIB */ -}}
{{- define "kv.settings" -}}
{{- range $name, $value := . }}
- {name: KVCLUSTER_{{ $name | upper | replace "-" "_" }}, value: {{ $value | toString | quote }}}
{{- end }}
{{- end -}}

{{- /* For every program that serves clients. A router that required no certificate would let anybody in under its own. */ -}}
{{- define "kv.tlsSettings" -}}
{{- if .Values.tls.enabled }}
- {name: KVCLUSTER_TLS_CERT, value: /tls/tls.crt}
- {name: KVCLUSTER_TLS_KEY, value: /tls/tls.key}
- {name: KVCLUSTER_TLS_CA, value: /tls/ca.crt}
- {name: KVCLUSTER_TLS_CLIENT_AUTH, value: {{ .Values.tls.clientAuth }}}
{{- else }}
- {name: KVCLUSTER_ALLOW_PLAINTEXT, value: "true"}
{{- end }}
{{- end -}}

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

{{- /* Mistakes that the schema cannot find, because they concern two values. */ -}}
{{- define "kv.check" -}}
{{- if lt (int .Values.node.count) (int .Values.cluster.replicationFactor) -}}
{{- fail (printf "node.count is %d, fewer than cluster.replicationFactor, %d. Every shard needs that many nodes, so their number cannot be reduced below it." (int .Values.node.count) (int .Values.cluster.replicationFactor)) -}}
{{- end -}}
{{- if and .Values.etcd.enabled .Values.externalEtcd.endpoints -}}
{{- fail "etcd.enabled is true and externalEtcd.endpoints names an etcd too. Set etcd.enabled to false, or remove the endpoints." -}}
{{- end -}}
{{- if not (or .Values.etcd.enabled .Values.externalEtcd.endpoints) -}}
{{- fail "etcd.enabled is false and externalEtcd.endpoints is empty, so there is no coordinator. Set one of them." -}}
{{- end -}}
{{- if and .Values.externalEtcd.endpoints (ne (empty .Values.externalEtcd.user) (empty .Values.externalEtcd.passwordSecret)) -}}
{{- fail "externalEtcd.user and externalEtcd.passwordSecret require each other. Set both or none." -}}
{{- end -}}
{{- if and .Values.tls.enabled (not .Values.tls.certManager.enabled) (not (and .Values.tls.nodeSecret .Values.tls.routerSecret)) -}}
{{- fail "tls.enabled requires tls.nodeSecret and tls.routerSecret, or tls.certManager.enabled." -}}
{{- end -}}
{{- if and .Values.tls.certManager.enabled (not .Values.tls.enabled) -}}
{{- fail "tls.certManager.enabled is set without tls.enabled, so certificates would be created and not used. Set tls.enabled too." -}}
{{- end -}}
{{- if and .Values.tls.certManager.enabled (not .Values.tls.certManager.issuerRef.name) -}}
{{- fail "tls.certManager.enabled requires the name of an issuer in tls.certManager.issuerRef.name." -}}
{{- end -}}
{{- if and .Values.router.autoscaling.enabled (gt (int .Values.router.autoscaling.min) (int .Values.router.autoscaling.max)) -}}
{{- fail (printf "router.autoscaling.min is %d, greater than router.autoscaling.max, %d." (int .Values.router.autoscaling.min) (int .Values.router.autoscaling.max)) -}}
{{- end -}}
{{- if hasKey .Values.node.settings "stop-grace-seconds" -}}
{{- fail "node.settings.stop-grace-seconds: the chart sets this itself, five seconds less than node.terminationGracePeriodSeconds. Change that value instead." -}}
{{- end -}}
{{- range $part, $settings := dict "node" .Values.node.settings "router" .Values.router.settings -}}
{{- range $setting, $_ := $settings -}}
{{- if or (has $setting (list "node" "data" "listen" "advertise" "listen-peers" "advertise-peers" "cluster" "coordinator" "bootstrap-nodes" "replicas" "split-at" "nodes" "admin" "admin-token-file" "allow-plaintext")) (hasPrefix "tls-" $setting) (hasPrefix "coordinator-" $setting) -}}
{{- fail (printf "%s.settings.%s: the chart sets this itself. Remove it, and see values.yaml for the value that it is derived from." $part $setting) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- $last := "" -}}
{{- range .Values.cluster.splitAt -}}
{{- if le . $last -}}
{{- fail (printf "cluster.splitAt: keys must be in ascending order, but '%s' does not come after '%s'." . $last) -}}
{{- end -}}
{{- $last = . -}}
{{- end -}}
{{- end -}}

{{- /* A container that runs `kv` against the router. */ -}}
{{- define "kv.cli" -}}
image: {{ include "kv.image" (list . "cli") }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
env:
  - {name: KV_ENDPOINT, value: "{{ include "kv.scheme" . }}://{{ include "kv.host" (list . (include "kv.fullname" .)) }}:7400"}
  {{- if .Values.tls.enabled }}
  - {name: KVCLUSTER_TLS_CA, value: /tls/ca.crt}
  - {name: KVCLUSTER_TLS_CERT, value: /tls/tls.crt}
  - {name: KVCLUSTER_TLS_KEY, value: /tls/tls.key}
  {{- end }}
resources:
  requests: {cpu: 50m, memory: 64Mi}
  limits: {memory: 256Mi}
securityContext: {{- include "kv.containerSecurity" . | nindent 2 }}
{{- if .Values.tls.enabled }}
volumeMounts:
  - {name: tls, mountPath: /tls, readOnly: true}
{{- end }}
{{- end -}}

{{- define "kv.cliVolumes" -}}
{{- if .Values.tls.enabled -}}
volumes:
  - {name: tls, secret: {secretName: {{ include "kv.routerSecret" . }}, defaultMode: 0440}}
{{- end -}}
{{- end -}}

{{- /* Overrides, as JSON, that turn the pod of `kubectl run kv` into such a container and meet the restricted standard. */ -}}
{{- define "kv.cliOverrides" -}}
{{- $container := pick (include "kv.cli" . | fromYaml) "imagePullPolicy" "env" "securityContext" "volumeMounts" | merge (dict "name" "kv") -}}
{{- $spec := dict "automountServiceAccountToken" false "securityContext" (include "kv.podSecurity" . | fromYaml) "containers" (list $container) -}}
{{- with .Values.image.pullSecrets }}{{ $_ := set $spec "imagePullSecrets" . }}{{ end -}}
{{- toJson (dict "spec" (merge $spec (include "kv.cliVolumes" . | fromYaml))) -}}
{{- end -}}
