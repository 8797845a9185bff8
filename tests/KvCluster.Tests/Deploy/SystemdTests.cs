using System.Globalization;
using System.Text.RegularExpressions;
using KvCluster.Node.Configuration;
using KvCluster.Processes;
using KvCluster.Router.Configuration;
using KvCluster.ServiceDefaults.Configuration;
using KvCluster.ServiceDefaults.Connections;
using KvCluster.ServiceDefaults.Programs;

namespace KvCluster.Tests.Deploy;

/// <summary>The units of deploy/systemd, and the settings beside them.</summary>
public sealed partial class SystemdTests
{
    private const string Folder = "deploy/systemd/";

    [Theory]
    [InlineData("kv-node@.service", "node.yaml")]
    [InlineData("kv-router.service", "router.yaml")]
    public void Unit_LeavesTheProgramTimeToStop_AndFilesToOpen(string unit, string settings)
    {
        var read = SettingsOf(settings);
        Assert.Empty(read.Mistakes);
        Assert.InRange(Number(unit, "TimeoutStopSec"), read.Get(CommonSettings.StopGrace) + 5, 120);
        Assert.InRange(Number(unit, "LimitNOFILE"), 4 * ListenerLimits.ConnectionsDefault, 1 << 20);
        Assert.Equal("SIGTERM", Value(unit, "KillSignal"));
        // The program does not notify, so with `notify` it would be ended as one that does not start.
        Assert.Equal("exec", Value(unit, "Type"));
    }

    /// <summary>What a restart does not mend is not tried for ever, and everything else is.</summary>
    [Fact]
    public void Units_AreNotRestarted_WhereThatDoesNotHelp()
    {
        Assert.Equal([ExitCodes.Usage, ExitCodes.OtherFormat, ExitCodes.Damaged, ExitCodes.Denied], Codes("kv-node@.service"));
        Assert.Equal([ExitCodes.Usage], Codes("kv-router.service"));
    }

    /// <summary>The router's settings were not installed and its unit not enabled, and both units named a document that nobody installs.</summary>
    [Fact]
    public void Upgrading_InstallsEveryFile_AndEnablesBothUnits()
    {
        var text = House.House.Read("deploy/UPGRADING.md");
        foreach (var path in Directory.GetFiles(Path.Combine(House.House.Root, Folder)))
        {
            Assert.Contains(Folder + Path.GetFileName(path), text, StringComparison.Ordinal);
            Assert.DoesNotContain("=file:", File.ReadAllText(path), StringComparison.Ordinal);
        }
        Assert.Contains("systemctl enable --now kv-node@1\n", text, StringComparison.Ordinal);
        Assert.Contains("systemctl enable --now kv-router ", text, StringComparison.Ordinal);
    }

    [ToolTheory("systemd-analyze")]
    [InlineData("kv-node@.service", "kv-node@1.service")]
    [InlineData("kv-router.service", "kv-router.service")]
    public async Task Unit_IsAcceptedBySystemd(string unit, string instance)
    {
        using var folder = new TemporaryDirectory();
        var copy = Path.Combine(folder.Path, instance);
        // The programs are not installed here.
        await File.WriteAllTextAsync(copy, Program().Replace(House.House.Read(Folder + unit), "ExecStart=/bin/true"));
        var (exitCode, output, error) = await Tools.RunAsync(Tools.Find("systemd-analyze")!, "verify", "--man=no", copy);
        Assert.Equal((0, ""), (exitCode, output + error));
    }

    private static Settings SettingsOf(string file)
    {
        var sources = new SettingSources(
            new Dictionary<string, string> { [CommonSettings.Config.Name] = Path.Combine(House.House.Root, Folder, file) }, new Dictionary<string, string>());
        if (file == "router.yaml")
            return SettingsReader.Read(RouterSettings.RunTable, RouterSettings.RunTable, sources);
        var settings = SettingsReader.Read(NodeSettings.RunTable, NodeSettings.Known, sources);
        NodeSettings.CheckRun(settings);
        return settings;
    }

    private static string Value(string unit, string name) =>
        Regex.Match(House.House.Read(Folder + unit), $"^{name}=(.*)$", RegexOptions.Multiline).Groups[1].Value;

    private static int Number(string unit, string name) => int.Parse(Value(unit, name), CultureInfo.InvariantCulture);

    private static IEnumerable<int> Codes(string unit) =>
        Value(unit, "RestartPreventExitStatus").Split(' ').Select(static code => int.Parse(code, CultureInfo.InvariantCulture));

    [GeneratedRegex(@"ExecStart=\S+")]
    private static partial Regex Program();
}
