using KvCluster.ServiceDefaults.Configuration;

namespace KvCluster.Tests.ServiceDefaults;

/// <summary>Settings from flags, environment and file: which one wins, and how mistakes are reported.</summary>
public sealed class SettingsReaderTests : IDisposable
{
    private static readonly Setting<int> Count = new("the-count", "N", "How many.", SettingForms.Number(1, 99)) { Default = "7" };
    private static readonly Setting<IReadOnlyList<string>> Names = new("names", "NAMES", "Who.", text => SettingForms.List(text, SettingForms.Text));
    private static readonly Setting<string> Where = new("where", "URL", "Where.", SettingForms.Url("http")) { IsRequired = true };
    private static readonly Setting[] Table = [CommonSettings.Config, Count, Names, Where];

    private readonly TemporaryDirectory _folder = new();

    private string FilePath => Path.Combine(_folder.Path, "kv.conf");

    public void Dispose() => _folder.Dispose();

    [Theory]
    [InlineData("1", "2", "3", 1, "--the-count")]
    [InlineData(null, "2", "3", 2, "KVCLUSTER_THE_COUNT")]
    [InlineData(null, "", "3", 3, "kv.conf:1: the-count")]
    [InlineData(null, null, "3", 3, "kv.conf:1: the-count")]
    [InlineData(null, null, null, 7, "default")]
    public void Read_FromSeveralSources_TheFirstWins(string? flag, string? variable, string? line, int expected, string origin)
    {
        File.WriteAllText(FilePath, line is null ? "" : $"the-count: {line}\n");
        var settings = Read(new() { ["config"] = FilePath, ["the-count"] = flag, ["where"] = "http://h:1" }, new() { ["KVCLUSTER_THE_COUNT"] = variable });
        Assert.Empty(settings.Mistakes);
        Assert.Equal(expected, settings.Get(Count));
        Assert.EndsWith(origin, settings.Describe(Count).Origin, StringComparison.Ordinal);
    }

    [Fact]
    public void Read_FileNamedByAVariable_IsRead()
    {
        File.WriteAllText(FilePath, "where: http://h:1");
        Assert.Equal("http://h:1", Read([], new() { ["KVCLUSTER_CONFIG"] = FilePath }).Get(Where));
    }

    [Fact]
    public void Read_WithManyMistakes_ReportsEachWithItsSource()
    {
        File.WriteAllText(FilePath, "# settings\nwhere: ftp://h\ncuont: 3\n");
        var settings = Read(
            new() { ["config"] = FilePath, ["the-count"] = "100" }, new() { ["KVCLUSTER_NAMES"] = ",", ["KVCLUSTER_NAME"] = "x", ["NAME"] = "y" });
        Assert.Equal(
        [
            "--the-count: '100' is not a number from 1 to 99.",
            "KVCLUSTER_NAMES: has no items.",
            $"{FilePath}:2: where: 'ftp://h' is not of the form http://host:port.",
            $"{FilePath}:3: cuont: is not known",
            "KVCLUSTER_NAME: is not known, did you mean 'KVCLUSTER_NAMES'?",
        ], settings.Mistakes);
        Assert.Equal(settings.Mistakes, Assert.Throws<SettingsException>(settings.ThrowIfWrong).Mistakes);
    }

    [Fact]
    public void Read_WithoutARequiredSetting_SaysHowToSetIt() =>
        Assert.Equal(["--where is missing (KVCLUSTER_WHERE, or where in the file): Where."], Read([], []).Mistakes);

    [Theory]
    [InlineData("the-cuont", "the-count")]
    [InlineData("whre", "where")]
    [InlineData("something-else", null)]
    public void Question_ForASimilarName_SuggestsTheKnownOne(string name, string? meant) =>
        Assert.Equal(meant is null ? "" : $", did you mean '{meant}'?", NearestName.Question(name, Table.Select(setting => setting.Name)));

    /// <summary>Kubernetes sets these in the containers beside a service named kvcluster.</summary>
    [Fact]
    public void Read_WithVariablesOfServices_IgnoresThem() => Assert.Empty(Read(new() { ["where"] = "http://h:1" }, new()
    {
        ["KVCLUSTER_SERVICE_HOST"] = "10.0.0.1",
        ["KVCLUSTER_ROUTER_SERVICE_PORT"] = "7400",
        ["KVCLUSTER_ROUTER_SERVICE_PORT_GRPC"] = "7400",
        ["KVCLUSTER_PORT"] = "tcp://10.0.0.1:7400",
        ["KVCLUSTER_PORT_7400_TCP_ADDR"] = "10.0.0.1",
    }).Mistakes);

    [Theory]
    [InlineData("the-count: 3\nnames: [ann, 'bob']\nwhere: \"http://h:1\"\n")]
    [InlineData("---\nthe-count: 3 # three\nnames:\n- ann\n- bob\nwhere: http://h:1\n")]
    [InlineData("{ \"the-count\": 3, \"names\": [\"ann\", \"bob\"], /* here */ \"where\": \"http://h:1\", }")]
    [InlineData("{\"the-count\": \"3\", \"names\": \"ann,bob\", \"where\": \"http://h:1\"}")]
    public void Read_AFileInEitherForm_FindsTheSame(string text)
    {
        var settings = ReadFile(text);
        Assert.Empty(settings.Mistakes);
        Assert.Equal(3, settings.Get(Count));
        Assert.Equal(["ann", "bob"], settings.Get(Names)!);
        Assert.Equal("http://h:1", settings.Get(Where));
    }

    [Theory]
    [InlineData("where: http://h:1\nnames:\nthe-count: ~\n")]
    [InlineData("{\"where\": \"http://h:1\", \"names\": null, \"the-count\": null}")]
    public void Read_AFileWithNulls_TakesThemForNotSet(string text)
    {
        var settings = ReadFile(text);
        Assert.Empty(settings.Mistakes);
        Assert.False(settings.IsGiven(Names));
        Assert.Equal(7, settings.Get(Count));
    }

    [Theory]
    [InlineData("where: http://h:1\ntls:\n  cert: x\n", ":2: tls: is neither a value nor a list of values; names are flat, such as tls-cert.")]
    [InlineData(
        "{\"where\": \"http://h:1\",\n \"tls\": {\"cert\": [1]}}", ":2: tls: is neither a value nor a list of values; names are flat, such as tls-cert.")]
    [InlineData("where: http://h:1\nnames: [[a]]\n", ":2: names: is neither a value nor a list of values; names are flat, such as tls-cert.")]
    [InlineData("where: http://h:1\nwhere: http://h:2\n", ":2: where: is set a second time.")]
    [InlineData("where: http://h:1\nnames: ['a,b']\n", ":2: names: 'a,b' contains a comma, which separates items.")]
    [InlineData("where: http://h:1\n---\nwhere: x\n", ":2: contains a second document.")]
    [InlineData("- where\n", ": is not a mapping of names to values.")]
    [InlineData("where\n", ":1: is not a mapping of names to values.")]
    public void Read_AFileWithAMistake_NamesItsLine(string text, string expected) =>
        Assert.Contains(FilePath + expected, ReadFile(text).Mistakes);

    [Theory]
    [InlineData("where: \"http://h:1\nnames: x\n", "is not YAML")]
    [InlineData("where: http://h:1\n\tnames: x\n", "is not YAML")]
    [InlineData("{\"where\": \"http://h:1\"\n \"names\": 1}", ":2: is not JSON")]
    [InlineData("{\"where\": \"http://h:1\"} x", ":1: is not JSON")]
    [InlineData("{\"where\": ", "is not JSON")]
    public void Read_AFileThatIsBroken_SaysWhere(string text, string expected)
    {
        // The only mistake, because after it nobody knows whether a setting is missing.
        var mistake = Assert.Single(ReadFile(text).Mistakes);
        Assert.StartsWith(FilePath, mistake, StringComparison.Ordinal);
        Assert.Contains(expected, mistake, StringComparison.Ordinal);
    }

    [Fact]
    public void Read_OfADirectory_ReportsIt()
    {
        var folder = Path.GetDirectoryName(FilePath)!;
        Assert.Equal([$"{folder}: is a directory."], Read(new() { ["config"] = folder }, []).Mistakes);
    }

    [Fact]
    public void Read_OfAMissingFile_IsAMistake()
    {
        var settings = Read(new() { ["config"] = FilePath, ["where"] = "http://h:1" }, []);
        Assert.StartsWith($"{FilePath}: cannot be read: ", Assert.Single(settings.Mistakes), StringComparison.Ordinal);
    }

    [Fact]
    public void Lines_OfEffectiveSettings_ShowValueAndSource()
    {
        File.WriteAllText(FilePath, "\nnames: [ann, bob]");
        var settings = Read(new() { ["config"] = FilePath, ["where"] = "http://h:1" }, []);
        var lines = SettingsText.Lines(Table, settings).Select(line => string.Join(' ', line.Split(' ', StringSplitOptions.RemoveEmptyEntries)));
        Assert.Equal([$"config {FilePath} --config", "the-count 7 default", $"names ann,bob {FilePath}:2", "where http://h:1 --where"], lines);
    }

    [Theory]
    [InlineData("http://h:1", true)]
    [InlineData("http://[::1]:1", true)]
    [InlineData("http://h:1/path", false)]
    [InlineData("http://user:secret@h:1", false)]
    [InlineData("h:1", false)]
    [InlineData("", false)]
    public void Url_AcceptsAddressesWithoutPath(string text, bool isRight)
    {
        var settings = Read(new() { ["where"] = text }, []);
        Assert.Equal(isRight, settings.Mistakes.Count == 0);
    }

    private Settings ReadFile(string text)
    {
        File.WriteAllText(FilePath, text);
        return Read(new() { ["config"] = FilePath }, []);
    }

    private static Settings Read(Dictionary<string, string?> flags, Dictionary<string, string?> variables) =>
        SettingsReader.Read(Table, Table, new SettingSources(Given(flags), Given(variables)));

    private static Dictionary<string, string> Given(Dictionary<string, string?> texts) =>
        texts.Where(text => text.Value is not null).ToDictionary(text => text.Key, text => text.Value!);
}
