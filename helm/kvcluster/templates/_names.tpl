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

{{- /*
  Whether nodes and routers speak TLS, as "true" or nothing. If no value says it, a new installation does, and one that exists keeps to what it does. That is found out
  once, and then it is the value. What only renders the chart finds nothing, as for a new installation.
*/ -}}
{{- define "kv.tls" -}}
{{- if kindIs "invalid" .Values.tls.enabled -}}
{{- $name := printf "%s-node" (include "kv.fullname" .) -}}
{{- $found := list (lookup "apps/v1" "StatefulSet" .Release.Namespace $name) (lookup "v1" "PersistentVolumeClaim" .Release.Namespace (printf "data-%s-1" $name)) (lookup "v1" "Secret" .Release.Namespace (include "kv.nodeSecret" .)) -}}
{{- $_ := set .Values.tls "enabled" (eq "true" (include "kv.speaksTls" $found)) -}}
{{- end -}}
{{- ternary "true" "" .Values.tls.enabled -}}
{{- end -}}

{{- /* The same for the release's own etcd. A new one does if nodes do. */ -}}
{{- define "kv.etcdTls" -}}
{{- if kindIs "invalid" .Values.etcd.tls.enabled -}}
{{- $enabled := false -}}
{{- if .Values.etcd.enabled -}}
{{- $name := printf "%s-etcd" (include "kv.fullname" .) -}}
{{- $statefulSet := lookup "apps/v1" "StatefulSet" .Release.Namespace $name -}}
{{- $claim := lookup "v1" "PersistentVolumeClaim" .Release.Namespace (printf "data-%s-0" $name) -}}
{{- if or $statefulSet $claim -}}
{{- $enabled = eq "true" (include "kv.speaksTls" (list $statefulSet $claim (lookup "v1" "Secret" .Release.Namespace (include "kv.etcdSecretName" .)))) -}}
{{- else -}}
{{- $enabled = eq "true" (include "kv.tls" .) -}}
{{- end -}}
{{- end -}}
{{- $_ := set .Values.etcd.tls "enabled" $enabled -}}
{{- end -}}
{{- ternary "true" "" .Values.etcd.tls.enabled -}}
{{- end -}}

{{- /*
  Whether TLS is spoken by what there is: (list statefulset claim secret), each of them empty if it does not exist. Volumes without a StatefulSet are left by a release that was
  uninstalled: it spoke TLS if its certificate is left, too.
*/ -}}
{{- define "kv.speaksTls" -}}
{{- if index . 0 -}}
{{- ternary "true" "" (contains "https://0.0.0.0:" (toJson (index . 0))) -}}
{{- else -}}
{{- ternary "true" "" (or (empty (index . 1)) (not (empty (index . 2)))) -}}
{{- end -}}
{{- end -}}

{{- /* Whether Jobs of this release make the certificates of nodes, routers and clients: not if secrets are named, or cert-manager makes them. */ -}}
{{- define "kv.makesCertificates" -}}
{{- if and (include "kv.tls" .) (not .Values.tls.certManager.enabled) (not .Values.tls.nodeSecret) -}}true{{- end -}}
{{- end -}}

{{- /* The same for the release's own etcd. */ -}}
{{- define "kv.makesEtcdCertificate" -}}
{{- if and .Values.etcd.enabled (include "kv.etcdTls" .) (not .Values.tls.certManager.enabled) (not .Values.etcd.tls.secret) -}}true{{- end -}}
{{- end -}}

{{- /* The names in certificates, one a line. The first names every node, so that scaling needs no new certificate. */ -}}
{{- define "kv.nodeNames" -}}
{{- $name := include "kv.fullname" . -}}
*.{{ include "kv.cluster" . }}.kvcluster
*.{{ include "kv.host" (list . (printf "%s-node" $name)) }}
{{ include "kv.host" (list . (printf "%s-nodes" $name)) }}
{{ $name }}-nodes
localhost
{{- end -}}

{{- define "kv.routerNames" -}}
{{- $name := include "kv.fullname" . -}}
router.{{ include "kv.cluster" . }}.kvcluster
{{ include "kv.host" (list . $name) }}
{{ $name }}.{{ .Release.Namespace }}.svc
{{ $name }}
localhost
{{- range .Values.tls.routerNames }}
{{ . }}
{{- end }}
{{- end -}}

{{- /* The second is all members' addresses. A member accepts another one only if a name in its certificate has the address that it comes from. */ -}}
{{- define "kv.etcdNames" -}}
{{- $host := include "kv.host" (list . (printf "%s-etcd" (include "kv.fullname" .))) -}}
*.{{ $host }}
{{ $host }}
localhost
{{- end -}}

{{- /* The secrets that Jobs of this release make, one a line. etcd has an authority of its own, because it admits whoever has a certificate of it. */ -}}
{{- define "kv.madeSecrets" -}}
{{- $name := include "kv.fullname" . -}}
{{- $secrets := list -}}
{{- if include "kv.makesCertificates" . -}}
{{- $secrets = list (printf "%s-authority" $name) (include "kv.nodeSecret" .) (include "kv.routerSecret" .) (printf "%s-client-tls" $name) -}}
{{- end -}}
{{- if include "kv.makesEtcdCertificate" . -}}
{{- $secrets = concat $secrets (list (printf "%s-etcd-authority" $name) (include "kv.etcdSecretName" .)) -}}
{{- end -}}
{{- join "\n" $secrets -}}
{{- end -}}

{{- /* Annotations of what is there only while Helm installs or upgrades. The Jobs that speak with the nodes come later, and need the certificates. */ -}}
{{- define "kv.certsHook" -}}
helm.sh/hook: pre-install,pre-upgrade
helm.sh/hook-weight: {{ . | quote }}
helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded
{{- end -}}

{{- /* The content of a Job that makes certificates: (list root account). Each authority has a container. */ -}}
{{- define "kv.certsJob" -}}
{{- $root := index . 0 -}}
{{- $name := include "kv.fullname" $root -}}
backoffLimit: 3
activeDeadlineSeconds: 300
template:
  metadata:
    labels: {{- include "kv.selector" $root | nindent 6 }}
      app.kubernetes.io/component: certs
  spec:
    restartPolicy: Never
    serviceAccountName: {{ $name }}-{{ index . 1 }}
    automountServiceAccountToken: true
    enableServiceLinks: false
    securityContext: {{- include "kv.podSecurity" $root | nindent 6 }}
    {{- with $root.Values.image.pullSecrets }}
    imagePullSecrets: {{- toYaml . | nindent 6 }}
    {{- end }}
    containers:
      {{- if include "kv.makesCertificates" $root }}
      - name: certs
        {{- include "kv.certsContainer" (list $root "authority" (list
          (printf "%s=%s" (include "kv.nodeSecret" $root) (include "kv.nodeNames" $root))
          (printf "%s=%s" (include "kv.routerSecret" $root) (include "kv.routerNames" $root))
          (printf "%s-client-tls" $name))) | nindent 8 }}
      {{- end }}
      {{- if include "kv.makesEtcdCertificate" $root }}
      - name: etcd-certs
        {{- include "kv.certsContainer" (list $root "etcd-authority" (list
          (printf "%s=%s" (include "kv.etcdSecretName" $root) (include "kv.etcdNames" $root)))) | nindent 8 }}
      {{- end }}
{{- end -}}

{{- define "kv.certsContainer" -}}
{{- $root := index . 0 -}}
image: {{ include "kv.image" (list $root "node") }}
imagePullPolicy: {{ $root.Values.image.pullPolicy }}
args:
  - certs
  - secrets
  - --authority={{ include "kv.fullname" $root }}-{{ index . 1 }}
  {{- range index . 2 }}
  - "--certificate={{ replace "\n" "," . }}"
  {{- end }}
  {{- range $label, $value := include "kv.selector" $root | fromYaml }}
  - --label={{ $label }}={{ $value }}
  {{- end }}
resources:
  requests: {cpu: 50m, memory: 64Mi}
  limits: {memory: 256Mi}
securityContext: {{- include "kv.containerSecurity" $root | nindent 2 }}
{{- end -}}

{{- define "kv.scheme" -}}
{{- ternary "https" "http" (eq "true" (include "kv.tls" .)) -}}
{{- end -}}

{{- /* Host name of a Service: (list root name) */ -}}
{{- define "kv.host" -}}
{{- $root := index . 0 -}}
{{- index . 1 }}.{{ $root.Release.Namespace }}.svc.{{ $root.Values.clusterDomain }}
{{- end -}}

{{- /* Address of any node that is ready. */ -}}
{{- define "kv.nodesAddress" -}}
{{ include "kv.scheme" . }}://{{ include "kv.host" (list . (printf "%s-nodes" (include "kv.fullname" .))) }}:7401
{{- end -}}

{{- define "kv.coordinator" -}}
{{- $root := . -}}
etcd=
{{- if .Values.etcd.enabled -}}
{{- $service := printf "%s-etcd" (include "kv.fullname" .) -}}
{{- range $index := until (int .Values.etcd.count) }}{{ if $index }},{{ end }}{{ include "kv.etcdScheme" $root }}://{{ $service }}-{{ $index }}.{{ include "kv.host" (list $root $service) }}:2379{{ end -}}
{{- else -}}
{{- join "," .Values.externalEtcd.endpoints -}}
{{- end -}}
{{- end -}}

{{- define "kv.etcdScheme" -}}
{{- ternary "https" "http" (eq "true" (include "kv.etcdTls" .)) -}}
{{- end -}}

{{- /* The secret with which nodes speak TLS to the coordinator. Empty: they do not. */ -}}
{{- define "kv.etcdSecret" -}}
{{- if not .Values.etcd.enabled -}}
{{- .Values.externalEtcd.tlsSecret -}}
{{- else if include "kv.etcdTls" . -}}
{{- include "kv.etcdSecretName" . -}}
{{- end -}}
{{- end -}}

{{- define "kv.etcdSecretName" -}}
{{- .Values.etcd.tls.secret | default (printf "%s-etcd-tls" (include "kv.fullname" .)) -}}
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
  {{- with $values.affinity }}
  {{- toYaml . | nindent 2 }}
  {{- else }}
  podAntiAffinity:
    preferredDuringSchedulingIgnoredDuringExecution:
      - weight: 100
        podAffinityTerm:
          topologyKey: kubernetes.io/hostname
          labelSelector:
            matchLabels:
              {{- include "kv.selector" $root | nindent 14 }}
              app.kubernetes.io/component: {{ $part }}
  {{- end }}
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

{{- /*
  The settings file of a node. It is an annotation of the pod, so each pod has the file of its own revision. A pod that an upgrade has not reached would read the new file
  of a ConfigMap when its container restarts, and a wrong setting would stop it too. All annotations of a pod may have 256 KiB; this has about one.
  What scaling changes is in the ConfigMap "creation" instead, because a changed annotation restarts the pods. Nothing else is a variable: Kubernetes merges the
  list of a container's variables, so one that a failed upgrade added would stay in spite of a rollback.
*/ -}}
{{- define "kv.nodeSettings" -}}
{{- $chart := dict
  "data" "/data"
  "listen" (printf "%s://0.0.0.0:7401" (include "kv.scheme" .))
  "cluster" (include "kv.cluster" .)
  "coordinator" (include "kv.coordinator" .)
  "replicas" .Values.cluster.replicationFactor
  "stop-grace-seconds" (sub (int .Values.node.terminationGracePeriodSeconds) 5)
-}}
{{- if include "kv.etcdSecret" . -}}
{{- $_ := set $chart "coordinator-ca" "/etc/kvcluster/etcd/ca.crt" -}}
{{- if or .Values.etcd.enabled .Values.externalEtcd.clientCertificate -}}
{{- $_ := set $chart "coordinator-cert" "/etc/kvcluster/etcd/tls.crt" -}}
{{- $_ := set $chart "coordinator-key" "/etc/kvcluster/etcd/tls.key" -}}
{{- end -}}
{{- end -}}
{{- with .Values.externalEtcd.user -}}
{{- $_ := set $chart "coordinator-user" . -}}
{{- $_ := set $chart "coordinator-password-file" "/etc/kvcluster/etcd/password" -}}
{{- end -}}
{{- toYaml (mergeOverwrite $chart (include "kv.serverSettings" . | fromYaml) .Values.node.settings) -}}
{{- end -}}

{{- /* The settings file of a router. */ -}}
{{- define "kv.routerSettings" -}}
{{- $chart := dict
  "listen" (printf "%s://0.0.0.0:7400" (include "kv.scheme" .))
  "nodes" (include "kv.nodesAddress" .)
-}}
{{- toYaml (mergeOverwrite $chart (include "kv.serverSettings" . | fromYaml) .Values.router.settings) -}}
{{- end -}}

{{- /* What both have in common. A router that required no certificate would let anybody in under its own. */ -}}
{{- define "kv.serverSettings" -}}
admin: http://0.0.0.0:7480
log-format: json
{{- if include "kv.tls" . }}
tls-ca: /etc/kvcluster/tls/ca.crt
tls-cert: /etc/kvcluster/tls/tls.crt
tls-key: /etc/kvcluster/tls/tls.key
tls-client-auth: {{ .Values.tls.clientAuth }}
{{- else }}
allow-plaintext: true
{{- end }}
{{- if .Values.console.tokenSecret }}
admin-token-file: /etc/kvcluster/console/token
{{- end }}
{{- end -}}

{{- /*
  The volume with a program's settings file and secrets: (list root part secret), where secret has the program's certificate. One volume, because Kubernetes
  replaces the list of a volume's sources but merges the list of volumes: one that a failed upgrade added would stay.
*/ -}}
{{- define "kv.files" -}}
{{- $root := index . 0 -}}
{{- $part := index . 1 -}}
- name: files
  projected:
    defaultMode: 0440
    sources:
      - downwardAPI: {items: [{path: settings.yaml, fieldRef: {fieldPath: "metadata.annotations['kvcluster.dev/settings']"}}]}
      {{- if include "kv.tls" $root }}
      - secret: {name: {{ index . 2 }}, items: [{key: ca.crt, path: tls/ca.crt}, {key: tls.crt, path: tls/tls.crt}, {key: tls.key, path: tls/tls.key}]}
      {{- end }}
      {{- with $root.Values.console.tokenSecret }}
      - secret: {name: {{ . }}, items: [{key: token, path: console/token}]}
      {{- end }}
      {{- if eq $part "node" }}
      {{- with include "kv.etcdSecret" $root }}
      - secret: {name: {{ . }}, items: [{key: ca.crt, path: etcd/ca.crt}{{ if or $root.Values.etcd.enabled $root.Values.externalEtcd.clientCertificate }}, {key: tls.crt, path: etcd/tls.crt}, {key: tls.key, path: etcd/tls.key}{{ end }}]}
      {{- end }}
      {{- with $root.Values.externalEtcd.passwordSecret }}
      - secret: {name: {{ . }}, items: [{key: password, path: etcd/password}]}
      {{- end }}
      {{- end }}
{{- end -}}

{{- /*
  The pod that takes a snapshot of the release's etcd. It runs kv-node, because etcd's image has no shell: etcdctl alone can neither name a file by the time nor delete the oldest
  one. Its settings are the part of a node's that concerns the coordinator.
*/ -}}
{{- define "kv.snapshotPod" -}}
{{- $settings := merge (dict "log-format" "json" "snapshot-dir" "/snapshots" "snapshot-keep" .Values.etcd.snapshots.keep) (pick (include "kv.nodeSettings" . | fromYaml) "cluster" "coordinator" "coordinator-ca" "coordinator-cert" "coordinator-key") -}}
metadata:
  labels: {{- include "kv.selector" . | nindent 4 }}
    app.kubernetes.io/component: etcd-snapshot
  annotations:
    kvcluster.dev/settings: |
      {{- toYaml $settings | nindent 6 }}
spec:
  restartPolicy: Never
  serviceAccountName: {{ include "kv.fullname" . }}
  automountServiceAccountToken: false
  enableServiceLinks: false
  securityContext: {{- include "kv.podSecurity" . | nindent 4 }}
  {{- with .Values.etcd.nodeSelector }}
  nodeSelector: {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.etcd.tolerations }}
  tolerations: {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.image.pullSecrets }}
  imagePullSecrets: {{- toYaml . | nindent 4 }}
  {{- end }}
  containers:
    - name: snapshot
      image: {{ include "kv.image" (list . "node") }}
      imagePullPolicy: {{ .Values.image.pullPolicy }}
      args: [coordinator-snapshot]
      env:
        - {name: KVCLUSTER_CONFIG, value: /etc/kvcluster/settings.yaml}
      resources:
        requests: {cpu: 50m, memory: 64Mi}
        limits: {memory: 256Mi}
      securityContext: {{- include "kv.containerSecurity" . | nindent 8 }}
      volumeMounts:
        - {name: snapshots, mountPath: /snapshots}
        - {name: files, mountPath: /etc/kvcluster, readOnly: true}
  volumes:
    - name: snapshots
      persistentVolumeClaim: {claimName: {{ include "kv.fullname" . }}-snapshots}
    - name: files
      projected:
        defaultMode: 0440
        sources:
          - downwardAPI: {items: [{path: settings.yaml, fieldRef: {fieldPath: "metadata.annotations['kvcluster.dev/settings']"}}]}
          {{- with include "kv.etcdSecret" . }}
          - secret: {name: {{ . }}, items: [{key: ca.crt, path: etcd/ca.crt}, {key: tls.crt, path: etcd/tls.crt}, {key: tls.key, path: etcd/tls.key}]}
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
{{- if and (include "kv.etcdTls" .) (not .Values.etcd.enabled) -}}
{{- fail "etcd.tls is for the release's own etcd, and etcd.enabled is false. Remove etcd.tls.enabled; externalEtcd.tlsSecret has the files for another etcd." -}}
{{- end -}}
{{- $statefulSets := dict "node" (lookup "apps/v1" "StatefulSet" .Release.Namespace (printf "%s-node" (include "kv.fullname" .))) -}}
{{- if .Values.etcd.enabled -}}
{{- $etcd := lookup "apps/v1" "StatefulSet" .Release.Namespace (printf "%s-etcd" (include "kv.fullname" .)) -}}
{{- $_ := set $statefulSets "etcd" $etcd -}}
{{- include "kv.checkEtcd" (list . $etcd) -}}
{{- end -}}
{{- range $part, $statefulSet := $statefulSets -}}
{{- include "kv.checkStorage" (list $ $part $statefulSet) -}}
{{- end -}}
{{- if and (not .Values.externalEtcd.endpoints) (or .Values.externalEtcd.tlsSecret .Values.externalEtcd.user .Values.externalEtcd.passwordSecret) -}}
{{- fail "externalEtcd.tlsSecret, user and passwordSecret are for externalEtcd.endpoints, which is empty. Set the endpoints, or remove the others." -}}
{{- end -}}
{{- if and .Values.externalEtcd.clientCertificate (not .Values.externalEtcd.tlsSecret) -}}
{{- fail "externalEtcd.clientCertificate requires externalEtcd.tlsSecret, which has the certificate." -}}
{{- end -}}
{{- range .Values.externalEtcd.endpoints -}}
{{- if and $.Values.externalEtcd.tlsSecret (not (hasPrefix "https://" .)) -}}
{{- fail (printf "externalEtcd.endpoints: '%s' does not begin with https://, but externalEtcd.tlsSecret is set. All endpoints use TLS or none." .) -}}
{{- end -}}
{{- end -}}
{{- if ne (empty .Values.externalEtcd.user) (empty .Values.externalEtcd.passwordSecret) -}}
{{- fail "externalEtcd.user and externalEtcd.passwordSecret require each other. Set both or none." -}}
{{- end -}}
{{- if and (not .Values.tls.certManager.enabled) (ne (empty .Values.tls.nodeSecret) (empty .Values.tls.routerSecret)) -}}
{{- fail "tls.nodeSecret and tls.routerSecret require each other. Set both, or none to have the certificates made." -}}
{{- end -}}
{{- if and (include "kv.tls" .) (not (regexMatch "^[A-Za-z0-9]([-A-Za-z0-9]{0,61}[A-Za-z0-9])?([.][A-Za-z0-9]([-A-Za-z0-9]{0,61}[A-Za-z0-9])?)*$" (include "kv.cluster" .))) -}}
{{- fail (printf "cluster.name: '%s' cannot be part of a DNS name, and with TLS the nodes' certificates name the cluster. Set another name, or tls.enabled to false." (include "kv.cluster" .)) -}}
{{- end -}}
{{- if and .Values.tls.certManager.enabled (not (include "kv.tls" .)) -}}
{{- fail "tls.certManager.enabled is set without TLS, so certificates would be created and not used. Set tls.enabled too." -}}
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
{{- range $part, $values := dict "node" .Values.node "router" .Values.router -}}
{{- range $setting, $_ := $values.settings -}}
{{- if or (has $setting (list "config" "node" "pod-name" "data" "listen" "advertise" "listen-peers" "advertise-peers" "cluster" "coordinator" "bootstrap-nodes" "replicas" "split-at" "nodes" "admin" "admin-token-file" "allow-plaintext" "until-stdin-ends")) (hasPrefix "tls-" $setting) (hasPrefix "coordinator-" $setting) -}}
{{- fail (printf "%s.settings.%s: the chart sets this itself. Remove it, and see values.yaml for the value that it is derived from." $part $setting) -}}
{{- end -}}
{{- end -}}
{{- range $values.env -}}
{{- if hasPrefix "KVCLUSTER_" .name -}}
{{- fail (printf "%s.env: %s would override the settings file. Set %s.settings.%s instead." $part .name $part (.name | trimPrefix "KVCLUSTER_" | lower | replace "_" "-")) -}}
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

{{- /*
  The size of volumes cannot be changed in a StatefulSet, which Kubernetes says as "Forbidden": (list root part statefulset), where the StatefulSet is the one that there is, or
  empty.
*/ -}}
{{- define "kv.checkStorage" -}}
{{- $root := index . 0 -}}
{{- $part := index . 1 -}}
{{- $size := (index $root.Values $part).storage.size -}}
{{- range dig "spec" "volumeClaimTemplates" list (index . 2) -}}
{{- $current := dig "spec" "resources" "requests" "storage" $size . -}}
{{- $growth := subf (include "kv.bytes" $size | float64) (include "kv.bytes" $current | float64) -}}
{{- if gt $growth 0.0 -}}
{{- fail (printf "%s.storage.size is %s, but the volumes have %s. Run `deploy/kubernetes/grow-storage %s %s --namespace %s%s` first, and then this again." $part $size $current $root.Release.Name $size $root.Release.Namespace (ternary " --etcd" "" (eq $part "etcd"))) -}}
{{- else if lt $growth 0.0 -}}
{{- fail (printf "%s.storage.size is %s, but the volumes have %s and cannot shrink. Set %s.storage.size=%s." $part $size $current $part $current) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- /* The members of an etcd keep each other's addresses in their data: (list root statefulset), where the StatefulSet is the one that there is, or empty. */ -}}
{{- define "kv.checkEtcd" -}}
{{- $root := index . 0 -}}
{{- range $container := dig "spec" "template" "spec" "containers" list (index . 1) -}}
{{- range $container.args -}}
{{- if and (hasPrefix "--initial-cluster=" .) (ne (eq "true" (include "kv.etcdTls" $root)) (contains "=https://" .)) -}}
{{- fail (printf "etcd.tls.enabled is %t and was %t when this etcd was created. Its members keep each other's addresses, so it cannot be changed. Set it back." $root.Values.etcd.tls.enabled (not $root.Values.etcd.tls.enabled)) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- /* A quantity as a number of bytes, because Kubernetes returns it in another form: 1024Mi as 1Gi. */ -}}
{{- define "kv.bytes" -}}
{{- $number := regexFind "^[0-9.]+" . -}}
{{- $units := dict "" 1 "m" 0.001 "k" 1e3 "M" 1e6 "G" 1e9 "T" 1e12 "P" 1e15 "Ki" 1024 "Mi" 1048576 "Gi" 1073741824 "Ti" 1099511627776 "Pi" 1125899906842624 -}}
{{- mulf (float64 $number) (get $units (trimPrefix $number .) | float64) | floor -}}
{{- end -}}

{{- /* A container that runs `kv` against the router. */ -}}
{{- define "kv.cli" -}}
image: {{ include "kv.image" (list . "cli") }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
env:
  - {name: KV_ENDPOINT, value: "{{ include "kv.scheme" . }}://{{ include "kv.host" (list . (include "kv.fullname" .)) }}:7400"}
  {{- if include "kv.tls" . }}
  - {name: KVCLUSTER_TLS_CA, value: /tls/ca.crt}
  - {name: KVCLUSTER_TLS_CERT, value: /tls/tls.crt}
  - {name: KVCLUSTER_TLS_KEY, value: /tls/tls.key}
  {{- end }}
resources:
  requests: {cpu: 50m, memory: 64Mi}
  limits: {memory: 256Mi}
securityContext: {{- include "kv.containerSecurity" . | nindent 2 }}
{{- if include "kv.tls" . }}
volumeMounts:
  - {name: tls, mountPath: /tls, readOnly: true}
{{- end }}
{{- end -}}

{{- define "kv.cliVolumes" -}}
{{- if include "kv.tls" . -}}
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
