using KvCluster.V1;
using Tag = System.Collections.Generic.KeyValuePair<string, object?>;

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

/// <summary>The methods of the key-value service as attributes of measurements and names of spans, created once.</summary>
internal static class MethodTags
{
    /// <summary>For a scan, which is not a <see cref="Method"/>.</summary>
    public static readonly Tag Scan = new(RpcTags.Method, "kvcluster.v1.Kv/Scan");

    /// <summary>For a watch, likewise.</summary>
    public static readonly Tag Watch = new(RpcTags.Method, "kvcluster.v1.Kv/Watch");

    private static readonly Tag[] All = [.. Enum.GetValues<Method>().Order().Select(static method => new Tag(RpcTags.Method, NameOf(method)))];

    /// <summary>A method's name by OpenTelemetry's conventions: "kvcluster.v1.Kv/Put".</summary>
    public static string NameOf(Method method) => $"kvcluster.v1.Kv/{method}";

    /// <summary>The attribute of a method; that of the unspecified method if a caller sent an unknown number.</summary>
    public static Tag Of(Method method) => All[(uint)method < (uint)All.Length ? (int)method : 0];
}
