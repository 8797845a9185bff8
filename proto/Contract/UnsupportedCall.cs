using System.Globalization;
using Google.Rpc;
using Grpc.Core;

namespace KvCluster;

/// <summary>
/// The refusal of a call that the other side does not know. During an upgrade callers are newer than some of the nodes and routers that they ask; what such a
/// one does not know was certainly not applied, and is not the caller's mistake. Nodes and routers say so themselves, and clients for a peer that gives no
/// reason. Pure; any thread.
/// </summary>
internal static class UnsupportedCall
{
    /// <summary>The reason, with the status UNIMPLEMENTED, which any gRPC client knows.</summary>
    public const string Reason = "UNSUPPORTED_BY_PEER";

    /// <summary>Metadata key: the id of the node; absent if a router refused.</summary>
    public const string NodeKey = "node";

    /// <summary>Metadata key: the version of the program that refused.</summary>
    public const string VersionKey = "version";

    // A path comes from the caller.
    private const int CallLengthMax = 200;

    /// <summary>The refusal by a program that knows its version.</summary>
    /// <param name="node">The node that refuses; <see cref="NodeId.None"/> for a router.</param>
    /// <param name="version">The version of its program.</param>
    /// <param name="call">What was called.</param>
    public static Google.Rpc.Status Refusal(NodeId node, string version, string call)
    {
        var info = StatusDetails.Info(Reason, StatusDetails.NotApplied);
        Describe(info, node, version);
        return StatusDetails.Create(StatusCode.Unimplemented, Text(node, version, call), info);
    }

    /// <summary>The refusal by a peer that does not say why.</summary>
    /// <param name="address">Where it answers.</param>
    /// <param name="call">What was called.</param>
    public static Google.Rpc.Status RefusalWithoutReason(string address, string call) => StatusDetails.Create(
        StatusCode.Unimplemented,
        $"What answers at {address} does not know the call {Shown(call)}; nothing was applied. It is a node or router of an older version, or another program: "
        + $"finish the upgrade, or check the address.",
        StatusDetails.Info(Reason, StatusDetails.NotApplied));

    /// <summary>The message of a refusal.</summary>
    public static string Text(NodeId node, string version, string call) =>
        $"The call {Shown(call)} is not known to {(node.IsNone ? "the router" : $"node {node}")}, whose program has version {version}; nothing was applied. "
        + "If the caller's version is later, finish the upgrade first.";

    /// <summary>Adds who refused to the details.</summary>
    public static void Describe(ErrorInfo info, NodeId node, string version)
    {
        if (!node.IsNone)
            info.Metadata[NodeKey] = node.ToString(null, CultureInfo.InvariantCulture);
        info.Metadata[VersionKey] = version;
    }

    /// <summary>How a method of an exchange is called that has no name here.</summary>
    public static string OfExchange(V1.Method method) => string.Create(CultureInfo.InvariantCulture, $"Exchange, method {(int)method}");

    private static string Shown(string call) => OneLine.Of(call.Length > CallLengthMax ? call[..CallLengthMax] : call);
}
