using KvCluster.V1;

namespace KvCluster;

/// <summary>What is true of each method of an exchange, for the node, the router and the client library.</summary>
internal static class Methods
{
    /// <summary>Whether this version knows the method.</summary>
    public static bool IsKnown(this Method method) => method is > Method.Unspecified and <= Method.SetIntersect;

    /// <summary>Whether it reads keys or sets and changes nothing, so that it may be repeated and perhaps be served by any replica.</summary>
    public static bool IsRead(this Method method) =>
        method is Method.Get or Method.GetMany or Method.List or Method.Count or Method.SetScan or Method.SetCount or Method.SetIntersect;

    /// <summary>Whether its outcome waits for a majority. This includes the opening and the end of a session, which are recorded too.</summary>
    public static bool IsChange(this Method method) => method.IsKnown() && !method.IsRead() && method != Method.KeepAlive;

    /// <summary>
    /// Whether it changes keys or sets, so that an attempt of unknown outcome must not be repeated without a RequestId. Opening a session twice opens two, of
    /// which the first ends by itself, and ending one twice is harmless.
    /// </summary>
    public static bool IsChangeOfKeys(this Method method) => method.IsChange() && method is not (Method.OpenSession or Method.EndSession);

    /// <summary>Whether the range of its request begins at `start` or `prefix`, and its answer says by `next_start` where the range continues.</summary>
    public static bool IsOfRange(this Method method) => method is Method.DeleteRange or Method.Count or Method.List;

    /// <summary>The number of the field with the RequestId; 0 if the method has none.</summary>
    public static int RequestIdField(this Method method) => method switch
    {
        Method.Put => PutRequest.RequestIdFieldNumber,
        Method.Delete => DeleteRequest.RequestIdFieldNumber,
        Method.DeleteRange => DeleteRangeRequest.RequestIdFieldNumber,
        Method.Increment => IncrementRequest.RequestIdFieldNumber,
        Method.Touch => TouchRequest.RequestIdFieldNumber,
        Method.Write => WriteRequest.RequestIdFieldNumber,
        Method.Transact => TransactRequest.RequestIdFieldNumber,
        Method.SetAdd => SetAddRequest.RequestIdFieldNumber,
        Method.SetRemove => SetRemoveRequest.RequestIdFieldNumber,
        _ => 0,
    };

    /// <summary>The number of the field with the ReadOptions; 0 if the method has none.</summary>
    public static int ReadOptionsField(this Method method) => method switch
    {
        Method.Get => GetRequest.ReadFieldNumber,
        Method.GetMany => GetManyRequest.ReadFieldNumber,
        Method.List => ListRequest.ReadFieldNumber,
        Method.Count => CountRequest.ReadFieldNumber,
        Method.SetScan => SetScanRequest.ReadFieldNumber,
        Method.SetCount => SetCountRequest.ReadFieldNumber,
        Method.SetIntersect => SetIntersectRequest.ReadFieldNumber,
        _ => 0,
    };
}
