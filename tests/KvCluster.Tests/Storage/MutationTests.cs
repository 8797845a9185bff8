namespace KvCluster.Tests.Storage;

/// <summary>
/// The mistakes that tests/nightly/mutants makes, one at a time, to prove that these tests find them. Here it is only checked that they still fit the sources,
/// so that whoever changes those lines changes the mistake with them. Some are for the simulation.
/// </summary>
public sealed class MutationTests
{
    private const string Folder = "tests/nightly/mutations/";

    private static readonly Lazy<string> Scenarios = new(static () => string.Concat(
        House.House.TextFiles().Where(static path => path.StartsWith("tests/KvCluster.Simulation/", StringComparison.Ordinal)).Select(House.House.Read)));

    private static readonly Lazy<List<string>> TestNames = new(static () =>
    [
        .. typeof(MutationTests).Assembly.GetTypes().Where(static type => type.IsClass)
            .SelectMany(static type => type.GetMethods().Select(method => $"{type.FullName}.{method.Name}")),
    ]);

    public static TheoryData<string> Mutations =>
        new(House.House.TextFiles().Where(static path => path.StartsWith(Folder, StringComparison.Ordinal)).Select(static path => path[Folder.Length..]));

    [Theory]
    [MemberData(nameof(Mutations))]
    public void Mutation_NamesTestsThatExistAndLinesThatAreInTheFileOnce(string name)
    {
        var lines = House.House.Read(Folder + name).Split('\n');
        var file = Field(lines, "file: ");
        var source = House.House.Read(file).Split('\n').Select(static line => line.Trim()).ToList();
        var removed = Changed(lines, '-');
        var places = Enumerable.Range(0, source.Count).Count(index => source.Skip(index).Take(removed.Count).SequenceEqual(removed));
        Assert.True(
            removed.Count > 0 && places == 1,
            $"The lines that {Folder}{name} removes are in {file} {places} times. Change it with the code: it describes a mistake that the named tests must "
            + "find.");
        Assert.NotEqual(removed, Changed(lines, '+'));
        if (lines.FirstOrDefault(static line => line.StartsWith("simulation: ", StringComparison.Ordinal)) is { } simulation)
        {
            Assert.True(simulation.Split(' ') is [_, var scenario, _, _] && Scenarios.Value.Contains($"\"{scenario}\"", StringComparison.Ordinal), simulation);
            return;
        }
        Assert.All(Field(lines, "tests: ").Split(' '), test => Assert.Contains(TestNames.Value, full => full.Contains(test, StringComparison.Ordinal)));
    }

    /// <summary>The script's part of the mistakes follows from the length of a round, which was a number of its own. With other
    /// checks some parts would hardly ever be made.</summary>
    [Fact]
    public void Turn_FollowsFromTheNumberOfChecksOfARound()
    {
        Assert.Contains("\nexport KV_ROUND_HOURS=${#proofs[@]}\n", House.House.Read("tests/nightly/run"), StringComparison.Ordinal);
        Assert.Contains("/ 3600 / ${KV_ROUND_HOURS:-1} %", House.House.Read("tests/nightly/mutants"), StringComparison.Ordinal);
    }

    /// <summary>Those for the simulation were left out of each short run, so that no run of CI made any of them.</summary>
    [Fact]
    public void ShortRun_TakesAThirdOfThoseForTheSimulation_ByTurns() => Assert.Contains(
        "\n  for ((index = $(turn 3); index < ${#simulated[@]}; index += 3)); do\n    chosen+=(\"${simulated[index]}\")\n  done\n",
        House.House.Read("tests/nightly/mutants"),
        StringComparison.Ordinal);

    private static string Field(string[] lines, string name) => lines.Single(line => line.StartsWith(name, StringComparison.Ordinal))[name.Length..].Trim();

    private static List<string> Changed(string[] lines, char sign) => [.. lines.Where(line => line.StartsWith(sign)).Select(static line => line[1..].Trim())];
}
