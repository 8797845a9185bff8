using System.Text.RegularExpressions;
using Grpc.Core;

namespace KvCluster.Tests.House;

/// <summary>The reasons of errors, which programs depend on: the contract lists all of them, and each is expected by name in a test.</summary>
public sealed partial class ReasonTests
{
    private const string Contract = "proto/Contract/kvcluster/v1/kv.proto";
    private static readonly string[] Servers = ["node/Server/", "router/", "client/Transport/", "proto/ServiceDefaults/"];

    /// <summary>Those of operators' calls are in admin.proto.</summary>
    private const string Admin = "proto/Contract/kvcluster/admin/v1/admin.proto";

    [Fact]
    public void Reasons_OfTheContract_AreEachExpectedByATest()
    {
        var expected = House.TextFiles()
            .Where(static path => path.StartsWith("tests/", StringComparison.Ordinal) && path.EndsWith(".cs", StringComparison.Ordinal))
            .SelectMany(static path => Literal().Matches(House.Read(path)).Select(static literal => literal.Groups[1].Value)).ToHashSet(StringComparer.Ordinal);
        var reasons = ReasonsOf(Contract);
        Assert.Contains("OUTCOME_UNKNOWN", reasons);
        Assert.Empty(reasons.Except(expected));
    }

    [Fact]
    public void Reasons_OfTheServers_AreInTheContract()
    {
        var known = ReasonsOf(Contract).Concat(Word().Matches(House.Read(Admin)).Select(static word => word.Value)).ToHashSet(StringComparer.Ordinal);
        var used = House.TextFiles()
            .Where(static path => Servers.Any(folder => path.StartsWith(folder, StringComparison.Ordinal)) && path.EndsWith(".cs", StringComparison.Ordinal))
            .SelectMany(static path => Reason().Matches(House.Read(path)).Select(static reason => reason.Groups[1].Value));
        Assert.Empty(used.Except(known));
    }

    /// <summary>The reasons of calls on keys.</summary>
    internal static HashSet<string> OfContract() => ReasonsOf(Contract);

    /// <summary>Those that only operators' calls have.</summary>
    internal static HashSet<string> OfOperators() => ReasonsIn(House.Read(Admin)[..House.Read(Admin).IndexOf("syntax = ", StringComparison.Ordinal)]);

    // The list stands between two lines of the file's head.
    private static HashSet<string> ReasonsOf(string contract)
    {
        var text = House.Read(contract);
        return ReasonsIn(text[text.IndexOf("// Reasons, by status code:", StringComparison.Ordinal)..text.IndexOf("// Limits: ", StringComparison.Ordinal)]);
    }

    // Codes of gRPC stand before a colon, or in words about them.
    private static HashSet<string> ReasonsIn(string list)
    {
        var codes = Enum.GetNames<StatusCode>().Select(static name => Border().Replace(name, "_").ToUpperInvariant()).Except(["CANCELLED", "INTERNAL"]);
        return Word().Matches(list).Select(static word => word.Value).Except(codes).ToHashSet(StringComparer.Ordinal);
    }

    [GeneratedRegex(@"(?<=[a-z])(?=[A-Z])")]
    private static partial Regex Border();

    [GeneratedRegex(@"\b[A-Z]+_[A-Z_]+\b|\b(?:BUSY|STOPPING|COMPACTED|CANCELLED|CORRUPT|INTERNAL)\b")]
    private static partial Regex Word();

    [GeneratedRegex(@"""([A-Z]{2,}(?:_[A-Z]+)*)""")]
    private static partial Regex Literal();

    [GeneratedRegex(@"(?:StatusCode\.\w+,\s*|Info\()""([A-Z]{2,}(?:_[A-Z]+)*)""")]
    private static partial Regex Reason();
}
