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
