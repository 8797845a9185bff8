using System.Text.RegularExpressions;

namespace KvCluster.Tests.House;

/// <summary>A method whose name ends in Locked needs a lock that its caller holds, and checks that before it does anything.</summary>
public sealed partial class LockRuleTests
{
    private static readonly string[] Folders = ["proto/", "node/", "client/", "router/"];

    [Fact]
    public void MethodsNamedLocked_FirstCheckTheirLock()
    {
        var methods = House.TextFiles()
            .Where(static path => path.EndsWith(".cs", StringComparison.Ordinal) && Folders.Any(folder => path.StartsWith(folder, StringComparison.Ordinal)))
            .SelectMany(static path => Declaration().Matches(House.Read(path)).Select(
                method => (Where: $"{path}: {method.Groups[1].Value}", Checks: method.Groups[2].Success)))
            .ToList();
        Assert.NotEmpty(methods);
        Assert.Empty(methods.Where(static method => !method.Checks).Select(static method => method.Where));
    }

    [GeneratedRegex(
        @"^ +(?:private|internal|public|protected)\b[^\n=;]*?\s(\w+Locked)(?:<[^>\n]*>)?\([^\n]*(\n +\{\n +Invariant\.CheckHeld\()?", RegexOptions.Multiline)]
    private static partial Regex Declaration();
}
