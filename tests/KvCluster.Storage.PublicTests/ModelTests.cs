namespace KvCluster.PublicTests;

/// <summary>
/// Random changes of several named trees, compared with sorted dictionaries of values and of sets for each: batches with conditions by many callers at once,
/// deletes of ranges, trees that come and go, snapshots that stay open over checkpoints, cursors, backups, closing and opening again. Uses what every user has.
/// KV_SEED repeats a run, KV_LONG=1 makes many.
/// </summary>
public sealed class ModelTests : StoreTest
{
    private const int Steps = 250;
    private int _runs;

    [Fact]
    public Task Store_UnderRandomChangesOfManyTrees_AgreesWithTheModel() => AgreesAsync(seeds: 1);

    [Fact]
    [Trait("Turn", "2")]
    public Task Store_UnderMoreRandomChangesOfManyTrees_AgreesWithTheModel() => AgreesAsync(seeds: 4);

    private Task AgreesAsync(int seeds) => Seeds.RunAsync(seeds, async random =>
    {
        await using var model = new StoreModel(Beside($"run-{++_runs}"), random);
        for (var step = 0; step < Steps; step++)
            await StepAsync(model, random);
        await model.ReopenAsync();
        await model.RestoreAsync();
    });

    private static async Task StepAsync(StoreModel model, Random random)
    {
        switch (random.Next(100))
        {
            case < 50:
                await model.WriteAsync(random.Next(1, 9));
                break;
            case < 56:
                await model.WriteDuringCheckpointAsync(random.Next(1, 9));
                break;
            case < 64:
                await model.DeleteRangeAsync();
                break;
            case < 70:
                await model.CreateTreeAsync();
                break;
            case < 72:
                await model.DropTreeAsync();
                break;
            case < 82:
                model.OpenSnapshot();
                break;
            case < 89:
                model.CloseSnapshot();
                break;
            case < 97:
                model.CheckNewest();
                break;
            case < 99:
                await model.ReopenAsync();
                break;
            default:
                await model.RestoreAsync();
                break;
        }
    }
}
