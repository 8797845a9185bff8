namespace KvCluster.Telemetry;

/// <summary>Names of attributes: those of OpenTelemetry's conventions for remote procedure calls, and our own.</summary>
internal static class RpcTags
{
    /// <summary>"grpc".</summary>
    public const string System = "rpc.system.name";

    /// <summary>"kvcluster.v1.Kv/Put".</summary>
    public const string Method = "rpc.method";

    /// <summary>Name of the gRPC status code: "OK".</summary>
    public const string Status = "rpc.response.status_code";

    /// <summary>The reason of an error, as in its details: "NOT_LEADER".</summary>
    public const string Error = "error.type";

    /// <summary>Id of a shard.</summary>
    public const string Shard = "kvcluster.shard";

    /// <summary>Id of the node at the other end.</summary>
    public const string Peer = "kvcluster.peer";

    /// <summary>An etag as text.</summary>
    public const string Etag = "kvcluster.etag";
}
