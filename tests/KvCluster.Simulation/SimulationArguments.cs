namespace KvCluster.Simulation;

/// <summary>The arguments of the program.</summary>
/// <param name="Seeds">The number of seeds.</param>
/// <param name="First">The first one.</param>
/// <param name="Scenarios">The scenarios to draw from; null: all.</param>
/// <param name="Bug">Injected into all of them.</param>
/// <param name="StopsAtFailure">Run no seeds after the first one that fails.</param>
internal sealed record SimulationArguments(int Seeds, int First, IReadOnlyList<Scenario>? Scenarios, InjectedBug Bug, bool StopsAtFailure)
{
    public static string Usage =>
        "usage: --seeds N --first SEED [--scenario NAME] [--bug NAME] [--fail-fast]\n"
        + $"scenarios: {string.Join(", ", Simulation.Scenarios.All.Select(scenario => scenario.Name))}, or F1 for those of a fault\n"
        + $"bugs: {string.Join(", ", Enum.GetNames<InjectedBug>())}";

    /// <exception cref="ArgumentException">An argument is unknown or has an invalid value.</exception>
    public static SimulationArguments Parse(string[] arguments)
    {
        var parsed = new SimulationArguments(100, 1, null, InjectedBug.None, StopsAtFailure: false);
        for (var i = 0; i < arguments.Length; i += 2)
        {
            // The only one without a value.
            if (arguments[i] == "--fail-fast")
            {
                parsed = parsed with { StopsAtFailure = true };
                i--;
                continue;
            }

            var value = i + 1 < arguments.Length ? arguments[i + 1] : throw new ArgumentException($"{arguments[i]} has no value");
            parsed = arguments[i] switch
            {
                "--seeds" => parsed with { Seeds = Number(value, least: 1) },
                "--first" => parsed with { First = Number(value, least: 0) },
                "--scenario" => parsed with { Scenarios = Simulation.Scenarios.Named(value) },
                // It is injected to be found, and the first seed that finds it is enough.
                "--bug" => parsed with
                {
                    StopsAtFailure = true,
                    Bug = Enum.TryParse<InjectedBug>(value, out var bug) && Enum.IsDefined(bug) ? bug : throw new ArgumentException($"no bug \"{value}\""),
                },
                _ => throw new ArgumentException($"unknown argument {arguments[i]}"),
            };
        }

        return parsed.First <= int.MaxValue - parsed.Seeds ? parsed : throw new ArgumentException("the last seed is too large");
    }

    private static int Number(string text, int least) =>
        int.TryParse(text, out var number) && number >= least ? number : throw new ArgumentException($"\"{text}\" is not a number from {least}");
}
